"""Oracles: what every simulated run must satisfy."""
