"""Nexmark: an auction house as a benchmark of queries, checked against DuckDB and compared with other systems."""
