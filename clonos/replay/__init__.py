"""Replay of a recorded epoch: one task in one ordinary process, cut off from the world (docs/debugging.md)."""
