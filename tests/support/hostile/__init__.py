"""Frames of peers that break every rule they know, drawn from a seed."""
