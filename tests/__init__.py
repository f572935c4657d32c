"""Tests of the project: one folder per part, and what they share; see tests/README.md."""
