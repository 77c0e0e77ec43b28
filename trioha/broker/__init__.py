"""Ring 1: what a broker decides. Values in, values out; the store and the time are given."""
