"""Every message of the protocol, by plane, and its codec."""
