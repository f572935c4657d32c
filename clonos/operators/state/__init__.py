"""Keyed state of a chain: tables, changes, snapshots and timers."""
