"""Scenarios: faults, jobs and expectations as data."""
