"""Benchmarks of what a part of the runtime costs: the same job with it and without."""
