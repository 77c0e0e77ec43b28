"""The surroundings of a node in memory: links, streams, a log and a message store. No node runs
here. The network, the virtual clock and the recorded events are in `trioha.testing`.
"""
