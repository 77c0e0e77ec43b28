"""Ring 1: Raft over a log of bytes, as pure machines. It speaks DLedger with Raft's nouns."""
