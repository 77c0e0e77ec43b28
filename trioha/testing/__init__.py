"""Clusters for tests: whole brokers, hands to hurt them, eyes to see what became of messages."""
