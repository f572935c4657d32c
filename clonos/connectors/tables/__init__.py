"""Database tables as an immediate sink."""
