"""Placement of tasks, standbys and keepers on slots: pure functions of plans, slots and their domains."""
