"""The checkpoint store: its objects, its chain of metadata, and the file systems it lies on."""
