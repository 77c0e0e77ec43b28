"""A broker that is a member of a DLEDGER group."""
