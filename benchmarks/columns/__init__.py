"""Benchmark of what a record costs in columns: reading, hops, windows."""
