"""Slots on Spark executors, sessions, and DataFrames in and out. The only importer of pyspark.

It differs from the other slot providers only in how a slot is born; everything above is one code path.
"""
