"""The surroundings of a node in memory: links, streams, a
log, a message store, and a sink that keeps every event. Nothing here runs a node.
"""
