"""The log of a DLEDGER group as a broker's store and tables, and its administration."""
