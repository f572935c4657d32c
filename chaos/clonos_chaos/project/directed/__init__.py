"""Directed tests: named faults at named points of the protocol."""
