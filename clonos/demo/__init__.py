"""``clonos demo``: word count that asks a fickle HTTP server, while its tasks are killed, and the verdict.

Nothing of the runtime is in here; the demo is a user of it, and its verdict is worked out by code of its own.
"""
