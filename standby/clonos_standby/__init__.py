"""Processes of a job: the slot process with its threads, and the driver's loop around the coordinator.

The package has shells only; ``clonos.core`` has the machines that they run, such as state mirrors, keepers of logs and
the placement.
"""
