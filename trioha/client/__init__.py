"""A small Trio client for RocketMQ: Producer, PushConsumer, PullConsumer, Admin."""
