"""Benchmarks of event time."""
