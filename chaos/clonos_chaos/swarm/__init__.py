"""Random worlds by seed, and the shrinking and reporting of failing seeds."""
