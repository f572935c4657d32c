"""Benchmark of Kafka source and sink against a loop over the client library."""
