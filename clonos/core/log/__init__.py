"""Causal logs: their entries, their bytes, and the copies that other tasks and keepers hold (protocol 2 and 3)."""
