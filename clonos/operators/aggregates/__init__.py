"""Aggregates of records: count, sum, extremes, ranks, sketches, and those of users."""
