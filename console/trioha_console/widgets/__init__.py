"""What screens are made of."""
