"""Sums over columns that do not fit one number of a slot: of floats and of decimals."""
