"""Both ends of a channel: sessions, credit, in-flight logs and their budgets (protocol 4)."""
