"""Names of rare situations: a swarm that never reaches one has proved less than it seems.

Each is a name in ``WorldOutcome.reached``. ``clonos chaos seeds`` prints how often each was reached; CI fails when one
was never reached.
"""

from __future__ import annotations

RECOVERY_IN_RECOVERY = "recovery inside a recovery"  # a process dies whose task has not caught up yet
VIEW_WHILE_GATHERING = "view while a task gathers"  # holders that have not answered are asked again under the new view
SPILL_IN_REPLAY = "spill during a replay"
ROLLBACK = "rollback"
FENCED_AT_SINK = "fenced zombie at a sink"  # the external system refuses a sink whose successor has registered
LATE_DELTA = "late delta"  # carried by a message of a closed session or of a replaced sender
SUBSTITUTE = "checkpoint completed by a substitute"  # begun with an incarnation, completed with its successor

HOT_TAKEOVER = "hot standby took over"  # and went live
WITHDRAWN = "rows withdrawn from a table"
MOVED = "task moved"
MOVED_WITH_EFFECTS = "task with effects outside of the job moved"
MOVE_GIVEN_UP = "move given up"  # what the task had begun took too long

SITUATIONS = (
    RECOVERY_IN_RECOVERY,
    VIEW_WHILE_GATHERING,
    SPILL_IN_REPLAY,
    ROLLBACK,
    FENCED_AT_SINK,
    LATE_DELTA,
    SUBSTITUTE,
    HOT_TAKEOVER,
    WITHDRAWN,
    MOVED,
    MOVED_WITH_EFFECTS,
)

RESCALED = "widths changed"
RESCALED_AFTER_END = "widths changed after the end of a task"
RESUMED_AT = "resumed with other widths"
"""These three are reached in worlds that ask for them only."""
