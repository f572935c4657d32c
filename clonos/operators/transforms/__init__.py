"""Operators of single streams: deduplication, top-k, folds, limits, branches, samples and routing."""
