"""One module per screen that only looks."""
