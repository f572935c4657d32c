"""The queries as Clonos jobs: in rows, with Python functions, and in columns."""
