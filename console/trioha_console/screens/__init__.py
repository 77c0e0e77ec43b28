"""Screens that open over the main window and close with escape."""
