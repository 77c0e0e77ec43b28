"""Ring 1: the name server as a table. It speaks RocketMQ (RouteInfoManager.java)."""
