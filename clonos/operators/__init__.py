"""What a stream compiles to: the operators that tasks run, with their keyed state, windows and timers.

Operators see batches, state and the causal services, never a socket, a file or the wall clock.
"""
