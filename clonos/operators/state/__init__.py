"""Keyed state of a chain: tables, changes, snapshots, timers."""
