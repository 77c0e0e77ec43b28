"""A node's answers about itself: pages for machines, its journal, its tasks."""
