"""Faults as data, scenarios, the simulated world, the oracle, and the same faults on real processes.

Users have these by ``clonos.testing`` and ``clonos chaos``. What tests this project, such as its mutants, is in
``project``, which the wheel does not have.
"""
