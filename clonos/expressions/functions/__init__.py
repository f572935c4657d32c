"""Functions of expressions by kind: each takes the binder, the node and its bound inputs, and returns the result."""
