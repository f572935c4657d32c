"""Benchmarks: each measures Clonos and its alternative in pairs, in one session: `make bench`."""
