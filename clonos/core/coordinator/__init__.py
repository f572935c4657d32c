"""The machine of the coordinator: start, failure detection, failover, checkpoints, views (protocol 5, 8 and 9)."""
