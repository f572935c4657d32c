"""Random worlds by seed, and how a failing one is shrunk and told."""
