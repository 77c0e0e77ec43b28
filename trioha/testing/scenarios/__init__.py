"""Scenarios that `trioha play` knows by name. Each is a file that a user could have written."""
