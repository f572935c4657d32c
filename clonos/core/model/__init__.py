"""What a job is to the core: identities, options, the plan, and the errors."""
