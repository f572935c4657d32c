"""Checkpoint stores as each format left them, which later versions read, or refuse by the number of the format.

``format_4/rows.tar.xz`` is the folder of a job that was aborted: its store, and its output, also what it has written
after the last checkpoint. ``numbers.json`` has the number of each format at that time. The jobs are in ``jobs.py``.

When a format changes, ``python -m tests.golden_stores`` adds a folder and its checksums. What is there does not change
any more, nor does a step of a job here: add a job for what is new.
"""
