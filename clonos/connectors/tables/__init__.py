"""Tables of a database as an immediate sink."""
