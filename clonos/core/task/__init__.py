"""Task: one incarnation with its steps, inputs, outputs and its log, which it records or replays (protocol 2 and 6)."""
