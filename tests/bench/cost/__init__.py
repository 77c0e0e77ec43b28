"""What one acknowledged message costs each node, in numbers that other load does not move."""
