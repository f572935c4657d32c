"""Random mutants of the core, judged by its unit tests and by simulated worlds: ``python -m tests.mutation --help``."""
