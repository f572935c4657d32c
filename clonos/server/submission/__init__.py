"""Submission of a job: what was sent, unpacked within limits, and loaded in a process of its own before it counts."""
