"""How one incarnation recovers: the table of its life, and the gathering of its log (protocol 6)."""
