"""Streaming jobs that may be nondeterministic and still survive the death of any process exactly-once, on Spark.

The public names of the library live here. They are loaded lazily: importing the package imports neither zmq
nor pyspark.
"""

__version__ = "0.1.0"
