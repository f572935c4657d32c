"""Session windows over columns."""
