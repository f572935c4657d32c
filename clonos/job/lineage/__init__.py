"""Events of OpenLineage: which data sets a job reads and writes, when it runs, and how it ends (docs/telemetry.md)."""
