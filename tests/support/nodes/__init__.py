"""Whole nodes of trioha inside the test's own process. `live_*` serve on loopback in real time,
`virtual_*` and `raft_members` on a clock that jumps and a network in memory; `failover_set` and
`handshakes` are nodes without a server around them.
"""
