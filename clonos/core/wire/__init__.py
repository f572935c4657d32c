"""Messages of the protocol, one module per plane, and their codec."""
