"""Random graphs of steps in event time, and a dumb twin that computes their results over the whole input."""
