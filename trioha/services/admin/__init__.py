"""What a node tells of itself: pages for machines, its journal, its tasks."""
