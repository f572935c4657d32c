"""Records of epochs as each format left them, whose tasks repeat themselves in later versions, or which are refused.

``format_1/demo.tar.xz`` has the records of one job, one for each task, and ``numbers.json`` the number of each format
at that time. The jobs are in ``jobs.py``: a pickled job needs the classes of its version, so these records have none,
and a test gives each the job of this version.

When a format changes, ``python -m tests.golden_records`` adds a folder and its checksums. What is there does not change
any more, nor does a step of a job here: add a job for what is new.
"""
