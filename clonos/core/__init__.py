"""The pure core: ids, errors, determinants, messages, logs and the state machines of control and recovery.

Nothing here reads a clock, draws a number, opens a file or a socket, or starts a thread: time is a tick, randomness a
seeded argument, identity a parameter. Import contracts in setup.cfg hold it.
"""
