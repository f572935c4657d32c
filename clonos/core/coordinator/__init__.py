"""Coordinator's machine: start, failure detection, failover, checkpoints and views (protocol 5, 8 and 9)."""
