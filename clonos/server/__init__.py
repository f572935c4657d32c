"""The page and the API of jobs: of one job in its driver, and of all jobs of a server.

Only ``clonos run --ui``, ``clonos demo --ui`` and ``clonos serve`` import this package: it needs the extra ``server``.
"""
