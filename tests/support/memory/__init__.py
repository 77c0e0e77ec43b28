"""The surroundings of a node in memory: a clock that jumps, a network that a test cuts, streams, a
log, a message store, and a sink that keeps every event. Nothing here runs a node.
"""
