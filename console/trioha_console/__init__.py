"""The console: a Textual program that watches a cluster over the network, from outside.

It is asyncio's, and a remote client like any other: what it asks, and what the answers mean, is
`trioha.watch`, which the recorder and the checks share.
"""

import os

# Textual draws what has changed when its clock ticks: 60 times a second, unless told otherwise
# before it is imported. A key that comes with a frame of figures waits for two ticks.
os.environ.setdefault("TEXTUAL_FPS", "120")
