"""Cost of one acknowledged message for each node, in numbers that other load does not move."""
