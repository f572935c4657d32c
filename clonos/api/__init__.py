"""What users write: streams, functions, windows and state descriptors, from which a plan is made.

Nothing here runs a job; it only describes one and refuses early what cannot run.
"""
