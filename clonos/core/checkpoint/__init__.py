"""Snapshots of tasks and the metadata of completed checkpoints (protocol 5)."""
