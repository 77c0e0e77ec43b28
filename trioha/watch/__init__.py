"""Ring 4: what is asked of a cluster to watch it, and what the answers mean. Values only."""
