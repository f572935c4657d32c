"""Slots as processes: how they are started, and what travels to them."""
