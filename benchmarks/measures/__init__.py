"""Benchmarks, one per module."""
