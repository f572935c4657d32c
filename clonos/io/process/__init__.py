"""Slots as processes: how they start, and how the job is sent to them."""
