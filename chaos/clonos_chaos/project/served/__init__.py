"""Soaks through a server of jobs."""
