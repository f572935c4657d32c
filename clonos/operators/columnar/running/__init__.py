"""Aggregates over all records of a key in columns: after each record, once per batch, or at the end of the input."""
