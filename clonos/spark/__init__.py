"""Slots on Spark executors, Spark sessions, and DataFrames as input and output. Only this package imports pyspark.

Spark slots differ from other slots only in how they are started; everything above the slot provider is the same code.
"""
