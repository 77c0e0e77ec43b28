"""Benchmarks of a cluster, and the load generator: plain loops over sockets, since it shares the
cores with what it measures."""
