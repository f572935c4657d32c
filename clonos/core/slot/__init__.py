"""The machine of a slot: the tasks it hosts, and the backups it holds for others."""
