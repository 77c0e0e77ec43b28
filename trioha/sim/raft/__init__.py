"""Raft groups in one heap: 3 or 5 members, a hostile network, hostile disks, clocks that lie."""
