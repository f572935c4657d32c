"""Standbys: mirrors of state, shadows of hot standbys, and the feeds of these (protocol 5 and 6.10)."""
