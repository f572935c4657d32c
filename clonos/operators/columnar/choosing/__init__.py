"""Operators on keyed columns that choose among the records of each key: the top k, and one of those with equal keys."""
