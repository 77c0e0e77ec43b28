"""The console: a Textual program that watches a cluster over the network, from outside.

It is asyncio's, and a remote client like any other: what it asks, and what the answers mean, is
`trioha.watch`, which the recorder and the checks share.
"""
