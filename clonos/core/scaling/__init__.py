"""The autoscaler: what a job needs, from what its tasks have done in the last seconds. Pure functions."""
