"""A name server."""
