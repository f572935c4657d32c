"""Aggregates over columns whose state is a list of values, records or counts of each key."""
