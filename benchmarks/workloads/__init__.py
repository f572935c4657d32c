"""Workloads of the benchmarks: inputs and jobs."""
