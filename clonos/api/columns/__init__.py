"""Columns in a plan: their schemas, and what sources of columns need not read."""
