"""``clonos demo``: a word count that calls an HTTP server while its tasks are killed, with a check of the result.

The demo uses clonos as any user does, and its check shares no code with the runtime.
"""
