"""Access to a server: its tokens, and the pace at which wrong ones are compared."""
