"""What differs between operators by the type of their records: Python objects, or typed columns."""
