"""Peers: the same word count in other systems, each in a separate process and environment."""
