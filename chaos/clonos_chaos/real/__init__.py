"""Scenarios on real processes: how each fault is injected."""
