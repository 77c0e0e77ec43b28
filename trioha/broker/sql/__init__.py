"""SQL92 filters over the properties of a message (RocketMQ's filter module)."""
