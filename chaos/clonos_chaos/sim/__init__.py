"""The simulated cluster: its clock, its network, its slots and its faults."""
