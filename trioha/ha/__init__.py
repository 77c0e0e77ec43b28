"""Ring 1: classic HA replication as pure machines. It speaks RocketMQ (HAService.java)."""
