"""The run of the suite itself: how large its campaigns are, which seeds they draw, what may be
skipped, and what becomes of a test that hangs. `tests/conftest.py` takes the hooks. Nothing here
knows a broker.
"""
