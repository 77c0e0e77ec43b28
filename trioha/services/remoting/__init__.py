"""Connections of the remoting protocol, at both ends."""
