"""Output to external systems and input from producers: keepers, the output gate, journals (protocol 7)."""
