"""Step size: how many elements a step takes so that it costs about ``step_cost_us`` (protocol 2 and 6).

A task whose earlier incarnations died repeatedly runs in single-step mode: it takes one element per step and announces
each beforehand, so that the element is known if it kills the process.
"""

from __future__ import annotations

from clonos.core.model.ids import ChannelId
from clonos.core.model.options import Options
from clonos.core.ports.task_port import TaskPort

COLUMNS_COST = 4
"""Target cost of a columnar step, in multiples of ``step_cost_us``. Most of its cost is per batch or per distinct key,
so shorter steps would raise the cost per record.
"""

COLUMNS_BYTES_MIN = 4 << 20
"""Bytes by which the output of a columnar step may exceed the credit. Otherwise a slow receiver would get batches of
few records, as would any at the start, when credit is low, and they would make it slower.
"""

GROWTH_MAX = 4
"""Factor by which an element of a columnar task may seem to cost less than its share of the steps."""

WEIGHT_RETAINED = 0.8
"""Weight of a columnar step in the estimate of costs, in that of the step after it."""

SPREAD_MIN = 0.05
"""Standard deviation of the elements of steps, as a share of their mean, from which on it shows what a step costs
without them.
"""

TRIAL_GROWTH = 1.25
"""Factor by which a columnar step grows if those before it had its size and cost their target."""

FIXED_RETAINED = 0.95
"""Share of what a step seems to cost without its elements that is left with each step that does not show it again."""

SINGLE_STEP_BARRIERS = 2
"""Barriers after which single-step mode ends, counted from the first announced element. The checkpoint of the first has
time to complete, so that the next incarnation, if there is one, begins closer to the fatal element.
"""

SINGLE_STEP_ELEMENTS_MAX = 4_096
SINGLE_STEP_NS_MAX = 1_000_000_000
"""Time after which single-step mode ends in any case, as after ``SINGLE_STEP_ELEMENTS_MAX``, to work off the
backlog.
"""


class CostLine:
    """Cost of columnar steps as a line: what each step costs, and what each element adds.

    A step may cost more than its target without its elements, as where threads wait for the lock of the interpreter or
    a function is called with the batch. Fewer elements would not make it cheaper, only their cost higher.
    """

    def __init__(self) -> None:
        self._weight = self._counts = self._costs_ns = self._squares = self._products = 0.0
        self._fixed_ns = 0.0  # as steps of different sizes have last shown it

    def add(self, count: int, cost_ns: int) -> None:
        """Adds a step over ``count`` elements."""
        self._weight = WEIGHT_RETAINED * self._weight + 1
        self._counts = WEIGHT_RETAINED * self._counts + count
        self._costs_ns = WEIGHT_RETAINED * self._costs_ns + cost_ns
        self._squares = WEIGHT_RETAINED * self._squares + count * count
        self._products = WEIGHT_RETAINED * self._products + count * cost_ns

    def elements(self, target_ns: int) -> int | None:
        """Returns the elements of a step whose cost is ``target_ns``, or twice what it costs without them if that is
        more; None if steps have cost nothing.
        """
        if not self._costs_ns:
            return None
        mean, mean_ns = self._counts / self._weight, self._costs_ns / self._weight
        variance = self._squares / self._weight - mean * mean
        if variance > (SPREAD_MIN * mean) ** 2:
            slope_ns = (self._products / self._weight - mean * mean_ns) / variance
            self._fixed_ns = max(0.0, mean_ns - slope_ns * mean)
        elif mean_ns * TRIAL_GROWTH >= target_ns:
            return int(TRIAL_GROWTH * mean) + 1
        else:
            self._fixed_ns *= FIXED_RETAINED
        fixed_ns = min(self._fixed_ns, mean_ns - mean_ns / GROWTH_MAX)
        return max(1, int(max(target_ns - fixed_ns, fixed_ns) * mean / (mean_ns - fixed_ns)))


class StepSize:
    """Step size of one incarnation. It is not logged, because the log has the length of each step."""

    def __init__(
        self,
        options: Options,
        port: TaskPort,
        is_single_step: bool,
        *,
        is_columnar: bool = False,
        single_step_ns_max: int = SINGLE_STEP_NS_MAX,
    ) -> None:
        self._options, self._port, self._single_step_ns_max = options, port, single_step_ns_max
        self._is_single_step = is_single_step
        self._announced = 0
        self._first_announced_ns = 0
        self._barriers = 0  # barriers since the first announced element
        self._cost_ns = 0.0  # cost of one element
        self._costs = CostLine()  # of columnar steps
        self._output_bytes = 0.0  # credit that one element uses on the channel that receives most
        self._last = 0  # limit of the last step
        self.is_columnar = is_columnar  # whether the task reads, receives or sends columns

    def expect_columns(self) -> None:
        """Notes that the task reads, receives or sends columns."""
        self.is_columnar = True

    def limit(self, budget_bytes: int, calls_room: int) -> int:
        """Returns how many elements the next step may take.

        Its output should fit into ``budget_bytes``, and each element may request one of ``calls_room`` asynchronous
        calls.
        """
        options = self._options
        if self._is_single_step:
            return min(1, calls_room)
        limit = min(options.step_records_first, options.step_records_max)
        target_ns = options.step_cost_us * 1_000
        if self.is_columnar and (found := self._costs.elements(target_ns * COLUMNS_COST)) is not None:
            limit = min(found, options.step_records_max)
        elif self._cost_ns and not self.is_columnar:
            limit = min(max(1, int(target_ns / self._cost_ns)), options.step_records_max)
        if self._output_bytes * limit > budget_bytes:  # no quotient where the mean of many steps has come to nothing
            # A nearly used-up budget must not cause tiny steps: half a step may exceed it.
            least = int(COLUMNS_BYTES_MIN / self._output_bytes) if self.is_columnar else 1
            limit = min(limit, max(1, least, self._last // 2, int(budget_bytes / self._output_bytes)))
        self._last = limit
        return min(limit, calls_room)

    def begin(self) -> int:
        """Returns the start of a step, for ``measure``."""
        return self._port.cost_clock_ns()

    def measure(self, count: int, began_ns: int) -> None:
        """Updates the cost per element by a step over ``count`` elements."""
        step_ns = max(0, self._port.cost_clock_ns() - began_ns)
        self._costs.add(count, step_ns)
        cost_ns = step_ns / count
        self._cost_ns = cost_ns if not self._cost_ns else 0.7 * self._cost_ns + 0.3 * cost_ns

    def produced(self, count: int, cost_bytes: int) -> None:
        """Updates the output per element: a step over ``count`` elements used ``cost_bytes`` of the fullest channel's
        credit.
        """
        output_bytes = cost_bytes / count
        self._output_bytes = output_bytes if not self._output_bytes else 0.7 * self._output_bytes + 0.3 * output_bytes

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        """Announces, in single-step mode, the element that the task takes next."""
        if self._is_single_step:
            if not self._announced:
                self._first_announced_ns = self._port.now_ns()
            self._port.announce_step(channel, first_seq)
            self._announced += 1
            single_step_ns = self._port.now_ns() - self._first_announced_ns
            self._is_single_step = (
                self._announced < SINGLE_STEP_ELEMENTS_MAX and single_step_ns < self._single_step_ns_max
            )

    def barrier(self) -> None:
        """Counts the end of an epoch, which may end single-step mode."""
        self._barriers += self._announced > 0
        self._is_single_step = self._is_single_step and self._barriers < SINGLE_STEP_BARRIERS
