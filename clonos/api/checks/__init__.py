"""Checks of a job while it is described: functions, names of methods, code with effects, sinks, standbys."""
