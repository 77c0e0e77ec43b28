"""The request processors of a node without a network: processors over a store, and the requests to
feed them, for tests that look at one answer at a time.
"""
