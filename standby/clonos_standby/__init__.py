"""What stands by for a death: mirrors of a task's state, keepers of its log, their placement, the slot's host process.

A standby is passive: it decides nothing and holds what a successor will need, in another domain where there is one.
"""
