"""Operators that work on batches of columns."""
