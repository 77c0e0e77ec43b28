"""A highly available message broker that speaks Apache RocketMQ's protocols, on Trio."""

__version__ = "0.1.0"
