"""Wrong rules of the protocol, each of which a directed test catches."""
