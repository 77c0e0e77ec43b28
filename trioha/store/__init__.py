"""Ring 1 and a half: RocketMQ's files. Synchronous; no Trio, no sockets, no opinion on time."""
