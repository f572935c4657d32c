"""Causal logs: their entries, their bytes, and who holds copies (protocol 2 and 3)."""
