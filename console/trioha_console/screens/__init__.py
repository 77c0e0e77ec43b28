"""What opens over the main window, and closes with escape."""
