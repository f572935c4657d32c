"""The register of a server: every job with its status, what was asked of it, and what it last reported."""
