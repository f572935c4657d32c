"""Joins over columns: their buffers are rows in Arrow batches, with sorted arrays that find matches."""
