"""Spans and metrics of a job for OpenTelemetry (docs/telemetry.md): needs the extra ``otel``, but for the spans
themselves. Only a run with ``telemetry`` imports the rest."""
