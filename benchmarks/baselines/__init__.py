"""Baselines: the same work in plain processes without fault tolerance."""
