"""Standbys: mirrors of state, shadows of hot standbys, and how a shadow takes over (protocol 5 and 10)."""
