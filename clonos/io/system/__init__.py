"""Clocks, entropy and limits of the operating system."""
