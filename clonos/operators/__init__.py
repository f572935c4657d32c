"""Operators that tasks run, into which streams are compiled, with their keyed state, windows and timers.

Operators use batches, state and the causal services, never a socket, a file or the wall clock.
"""
