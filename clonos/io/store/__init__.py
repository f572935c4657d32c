"""Checkpoint store: its objects, its metadata chain, and the file systems that hold them."""
