"""Kernels of the columnar engine: indexes from keys to slots, packed keys, reductions by slot, partitions of batches.

The bottom layer: nothing here imports another part of Clonos. A kernel that is written in C has a twin in numpy with
equal results, which runs where the extension was not built.
"""
