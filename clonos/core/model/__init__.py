"""Model of a job that every part of the core shares: ids, options, the plan and the error classes."""
