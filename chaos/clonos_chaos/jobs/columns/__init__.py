"""Random jobs on columns: steps by expressions, and windows, joins, aggregates and choices over columns after them."""
