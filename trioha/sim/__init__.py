"""Whole clusters in one heap: pure cores, a hostile network, a hostile disk, one seed."""
