"""Joins of two streams, and the merge of several in the order of their timestamps."""
