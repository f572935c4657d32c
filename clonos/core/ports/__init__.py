"""The ports of the core: what tasks, slots and operators are to it."""
