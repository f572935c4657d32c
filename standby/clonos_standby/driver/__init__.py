"""Driver process: the coordinator's thread, and I/O in the background."""
