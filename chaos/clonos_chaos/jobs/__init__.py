"""Jobs of the simulated worlds."""
