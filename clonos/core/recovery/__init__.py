"""Recovery of one incarnation: the table of its states, and the gathering of its log (protocol 6)."""
