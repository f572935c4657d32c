"""Expressions over columns: what a user writes, the checks of their types, and their compilation to Arrow and numpy.

``expression`` and its neighbours are the tree, without pyarrow; ``binding`` compiles it for a schema.
"""
