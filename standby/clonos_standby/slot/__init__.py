"""Slot process: its I/O thread and the threads around it."""
