"""Windows: which records of a key belong together, when their results leave, and when they are forgotten."""
