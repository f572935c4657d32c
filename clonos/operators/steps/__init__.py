"""The steps of a chain, a kind each."""
