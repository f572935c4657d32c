"""Error for executors whose Python does not start."""

from __future__ import annotations

from pyspark.errors import PySparkException

from clonos.spark.slots import failure_reason

OUTPUT = """Job aborted due to stage failure: Lost task 0.0 in stage 0.0 (TID 0): org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "/opt/worker.py", line 1, in <module>
  ModuleNotFoundError: No module named 'clonos_standby'
PYTHONPATH was:
  .:services
org.apache.spark.SparkException: EOFException occurred while reading the port number
	at org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:300)
Driver stacktrace:"""


def test_a_python_that_does_not_start_is_reported_with_its_error_and_path() -> None:
    reported = failure_reason(PySparkException(OUTPUT)).splitlines()
    assert reported[0] == "Error from python worker: Traceback (most recent call last):"
    assert reported[-3:] == ["ModuleNotFoundError: No module named 'clonos_standby'", "PYTHONPATH was:", ".:services"]
