"""Joins of two streams, and steps with two inputs."""
