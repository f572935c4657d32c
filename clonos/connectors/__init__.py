"""Sources and sinks: where records come from and where results become visible, exactly-once.

A source can be read again from a position or journals what it reads; a sink commits by epoch or is released by
a keeper.
"""
