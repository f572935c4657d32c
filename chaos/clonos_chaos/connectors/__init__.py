"""Checks of a connector: a source or a sink in jobs whose processes die, and the guarantee that it holds."""
