"""Directed tests: one named fault at one named moment."""
