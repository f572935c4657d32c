"""API for jobs: streams, process functions, windows and state descriptors, from which a plan is compiled.

Nothing here runs a job: these modules describe it and refuse at once what cannot run.
"""
