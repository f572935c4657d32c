"""The processes of a job: a slot's host process with its threads, and the driver's loop around the coordinator.

Shells only. The machines that they run, among them mirrors of state, keepers of logs and placement, are in
``clonos.core``.
"""
