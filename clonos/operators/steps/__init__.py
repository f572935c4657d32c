"""Operators by kind of step."""
