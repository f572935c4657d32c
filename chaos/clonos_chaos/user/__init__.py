"""Test tools for users' jobs: crash tests and a harness for one step."""
