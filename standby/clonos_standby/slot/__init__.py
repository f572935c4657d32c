"""The process of a slot: its I/O thread and the threads around it."""
