"""What stands by for a death: mirrors of a task's state, keepers of its log, their placement over domains, and the slot's host process."""
