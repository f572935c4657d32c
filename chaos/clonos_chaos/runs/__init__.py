"""Runs of scenarios, soaks and suites, and their reports."""
