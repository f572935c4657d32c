"""Records of epochs: what one task took in and decided between two barriers, for a replay in another process."""
