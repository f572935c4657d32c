"""One incarnation of a task: its steps, its inputs and outputs, and record or replay (protocol 2 and 6)."""
