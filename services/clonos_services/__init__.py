"""Causal services: clock, random, uuid, http, calls and timers, whose answers are recorded once and replayed the same.

Record-or-replay is written once. Outside a job each service is simply the real thing.
"""
