"""Faults as data, scenarios, the simulated world, the oracle, mutants, and the same faults on real processes."""
