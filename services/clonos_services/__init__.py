"""Causal services: clock, random, uuid, http, calls and timers, whose results are recorded once and replayed unchanged.

Outside a job each service is the plain function that it stands for. The record-or-replay rule is in ``calls``.
"""
