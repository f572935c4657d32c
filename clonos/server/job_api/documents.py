"""Documents of the API, as JSON and in its OpenAPI description (docs/console.md).

Times are ISO 8601 in UTC with milliseconds. A name that ends in ``_ms``, ``_ns``, ``_bytes`` or ``_per_s`` has its
unit. A field that is ``null`` is not known, unless it says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from clonos.job.job_status import JobStatus as JobStatus
from clonos.job.stack_documents import FLAME_S, FLAME_S_MAX

PEEK_ROWS_MAX = 100
KEY_CHARACTERS_MAX = 4_096
WIDTH_MAX = 1 << 16
"""Number of tasks above which a request is not a mistake that max_parallelism would name."""
ENDED_STATUSES = frozenset({JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED})


class JobSummary(BaseModel):
    """One job. ``recoveries``: of its tasks, since it was started. ``restarts``: drivers after the first; 0 in the
    documents of a driver. ``stopped``: a stop was requested."""

    id: str
    name: str
    status: JobStatus
    started_at: str
    ended_at: str | None = None
    recoveries: int = 0
    restarts: int = 0
    checkpoint: int = 0
    generation: int = 0
    error: str | None = None
    stopped: bool = False


class JobList(BaseModel):
    """Jobs of a driver (one) or of a server."""

    jobs: list[JobSummary]


class DriverDocument(BaseModel):
    """Kind of the server: that of a driver, which has one job and takes no other."""

    kind: str = "driver"
    submission_allowed: bool = False


class StepDocument(BaseModel):
    """Step as the user wrote it, and the vertex whose tasks run it. ``keyed``: each key has one of the tasks."""

    name: str
    kind: str
    parallelism: int
    vertex: str
    keyed: bool = False


class VertexDocument(BaseModel):
    """Vertex: steps that run in the same tasks."""

    name: str
    steps: list[str]
    tasks: int
    is_source: bool
    has_sink: bool


class PlanEdge(BaseModel):
    """Edge between two vertices, by their names. ``step``: the step of ``source`` whose rows it carries."""

    source: str
    target: str
    exchange: str
    step: str = ""


class PlanDocument(BaseModel):
    """Plan of a job."""

    steps: list[StepDocument]
    vertices: list[VertexDocument]
    edges: list[PlanEdge]


class JobDocument(JobSummary):
    """One job with what does not change while it runs. ``options`` have no passwords."""

    plan: PlanDocument
    options: dict[str, Any]
    outputs: list[str]


class TaskRates(BaseModel):
    """Rates of a task over the last two seconds. Ratios are from 0 to 1."""

    records_in_per_s: float
    records_out_per_s: float
    busy_ratio: float
    backpressure_ratio: float | None = None


class TaskDocument(BaseModel):
    """State of one task.

    ``slot``: its id in hex, "" while the task waits for a slot. ``losses_survived``: further losses of failure domains
    without a loss of output; null is any number of them.
    """

    name: str
    vertex: str
    steps: list[str]
    index: int
    phase: str
    incarnation: int
    slot: str
    host: str
    domain: str
    pid: int
    standbys: int
    keepers: int
    hot_standbys: int
    losses_survived: int | None
    counters: dict[str, int]
    rates: TaskRates
    watermark: str | None = None
    hot_key: str = ""
    hot_key_share: float = 0.0


class SlotDocument(BaseModel):
    """One living slot. ``cpu_s``: processor time since its process began."""

    slot: str
    pid: int
    host: str
    domain: str
    cpu_s: float = 0.0
    memory_bytes: int = 0


class EdgeDocument(BaseModel):
    """Traffic between two vertices. ``backlog``: elements on the way; ``watermark``: the lowest of the senders."""

    source: str
    target: str
    records_per_s: float | None = None
    backlog: int | None = None
    backpressure_ratio: float | None = None
    watermark: str | None = None


class RecoveryPhase(BaseModel):
    """Milestone of a recovery: detected, view, gathered, replayed, caught_up."""

    name: str
    at: str
    offset_ms: float


class RecoveryDocument(BaseModel):
    """Recovery of one task. ``number`` identifies it in this driver. Calls: to external systems, by the successor.

    ``duration_ms``: from the first phase until the task was live again; null before.
    """

    number: int
    task: str
    failed_incarnation: int
    incarnation: int
    cause: str
    phases: list[RecoveryPhase]
    duration_ms: float | None = None
    replayed_records: int
    replayed_calls: int
    executed_calls: int
    is_over: bool


class RecoveryList(BaseModel):
    """Recoveries, newest first."""

    recoveries: list[RecoveryDocument]


class SavepointDocument(BaseModel):
    """Savepoint that is being written. ``left_s``: an estimate; null before there is one. ``text``: one line of it."""

    path: str
    objects_done: int
    objects_total: int
    left_s: float | None
    text: str


class AlarmDocument(BaseModel):
    """Alarm of the runtime, with what to do."""

    number: int
    text: str
    at: str
    advice: str


class ScalingDocument(BaseModel):
    """Width that a step should have, with the reason as a sentence. Nobody changes it."""

    step: str
    width: int
    wanted: int
    text: str


class RescaleDocument(BaseModel):
    """Last change of widths or places that was asked for. ``number``: of the request; 0 if an earlier driver began it.
    ``phase``: ordering, warming, cutting, switching, done or refused. ``widths``: the numbers of tasks that will be, by
    vertex. ``text``: the phase in words, or why nothing changes. ``refusals``: why the last requests that came to
    nothing did, by their numbers. ``checkpoint``: the one at which all tasks stop, from when it is known until they
    begin again; else 0."""

    number: int
    phase: str
    widths: dict[str, int]
    text: str
    refusals: dict[int, str] = {}
    checkpoint: int = 0


class StatusDocument(BaseModel):
    """State of a job at one instant. ``skew``: a sentence for each busy task that gets far more than the others."""

    job: JobSummary
    at: str
    tasks: list[TaskDocument]
    slots: list[SlotDocument]
    edges: list[EdgeDocument]
    recoveries: list[RecoveryDocument]
    savepoints: list[SavepointDocument]
    scaling: list[ScalingDocument]
    rescale: RescaleDocument | None = None
    skew: list[str]
    alarms: list[AlarmDocument]
    totals: dict[str, int]
    injection_allowed: bool
    savepoints_supported: bool


class CheckpointDocument(BaseModel):
    """One checkpoint. ``status``: pending, completed or abandoned."""

    number: int
    begun_at: str
    completed_at: str | None
    duration_ms: float | None
    bytes: int | None
    status: str


class CheckpointList(BaseModel):
    """Checkpoints, newest first."""

    checkpoints: list[CheckpointDocument]


class HistoryLineDocument(BaseModel):
    """Line of the history. ``at``: when it was over. ``began_at``: when it began, of what lasts. ``event``: its kind
    (docs/history.md). ``term``: of the driver."""

    at: str
    began_at: str | None
    event: str
    task: str
    job_id: str
    term: int
    text: str


class HistoryDocument(BaseModel):
    """History of a job, over all its drivers, oldest first: the last lines of it."""

    lines: list[HistoryLineDocument]


class UserMetricDocument(BaseModel):
    """Series of a metric of user code in one task. ``value``: of a histogram the mean. ``buckets``: by upper bound."""

    name: str
    kind: str
    task: str
    labels: dict[str, str]
    value: float
    count: int | None = None
    sum: float | None = None
    buckets: dict[str, int] | None = None


class SeriesDocument(BaseModel):
    """Curves of the last hour: [milliseconds since the Unix epoch, value]; ``user``: metrics of user code."""

    series: dict[str, list[tuple[int, float]]]
    user: list[UserMetricDocument] = []


class LogLine(BaseModel):
    """One line of the driver's log, which has those of all slots."""

    number: int
    at: str
    level: str
    logger: str
    text: str
    task: str | None = None
    incarnation: int | None = None
    epoch: int | None = None


class LogDocument(BaseModel):
    """Lines of the log. ``next``: the value of ``after`` that continues."""

    lines: list[LogLine]
    next: int


class Accepted(BaseModel):
    """Answer to an accepted request. ``tasks``: those whose process was killed. ``savepoint``: where it will be.
    ``epoch``: folder of the record of a task's epoch. ``widths``: the number of tasks that each step will have.
    ``number``: of the request for other widths or places, see ``RescaleDocument``; 0 if nothing has to change.
    """

    accepted: bool = True
    tasks: list[str] = []
    savepoint: str | None = None
    epoch: str | None = None
    widths: dict[str, int] = {}
    number: int = 0


class ErrorText(BaseModel):
    """Code for programs and one sentence for people."""

    code: str
    message: str


class ErrorDocument(BaseModel):
    """Error of a request."""

    error: ErrorText


class SavepointRequest(BaseModel):
    """Request of a savepoint. ``path``: where to; null lets the job choose."""

    path: str | None = None


class RescaleRequest(BaseModel):
    """Request of other numbers of tasks of steps, by their names. ``place_anew``: all tasks are spread over the slots
    that the job has now. One of the two is needed."""

    widths: dict[str, Annotated[int, Field(ge=1, le=WIDTH_MAX, strict=True)]] = {}
    place_anew: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _asks(self) -> Self:
        if not self.widths and not self.place_anew:
            raise ValueError("neither widths nor place_anew")
        return self


class StopRequest(BaseModel):
    """Request of a stop. ``drain``: with a final checkpoint that commits all output so far."""

    savepoint: str | None = None
    drain: bool = True


class CaptureRequest(BaseModel):
    """Request of a record of a task's epoch. ``folder``: below which, on the driver's machine; null: beside the
    store."""

    task: str
    folder: str | None = None


class ThreadsRequest(BaseModel):
    """Request of a thread dump. ``task``: the threads of this task only; null: all of the job."""

    task: str | None = None


class ArgumentDocument(BaseModel):
    """Argument of a function as text, cut at 300 characters: as it is now, which the function may have changed."""

    name: str
    value: str


class ThreadDocument(BaseModel):
    """Thread. ``task``: whose code it runs, and ``step``: the innermost on its stack; "" for others. ``is_waiting``:
    the task waits for its slot. ``arguments``: of the function of user code that the step has called. ``frames``:
    innermost last."""

    name: str
    task: str
    step: str
    is_waiting: bool
    arguments: list[ArgumentDocument]
    frames: list[str]


class ProcessDocument(BaseModel):
    """Process with its threads, those of tasks first."""

    pid: int
    host: str
    is_driver: bool
    threads: list[ThreadDocument]


class ThreadDumpDocument(BaseModel):
    """Threads of a job. ``silent``: sentences about processes that did not answer."""

    processes: list[ProcessDocument]
    silent: list[str]


class FlameRequest(BaseModel):
    """Request to sample a task."""

    task: str
    seconds: float = Field(default=FLAME_S, gt=0, le=FLAME_S_MAX)


class FlameDocument(BaseModel):
    """Samples of a task. ``folded``: a line for each stack, with its functions separated by ";", and its samples."""

    task: str
    samples: int
    folded: str


class KeyRequest(BaseModel):
    """Request of what a key has gone through at a step. ``key``: as ``str`` or ``repr`` of Python shows it."""

    step: str = Field(max_length=KEY_CHARACTERS_MAX)
    key: str = Field(max_length=KEY_CHARACTERS_MAX)


class MessageDocument(BaseModel):
    """Message of a conversation. ``text`` has the calls of tools that it asks for, each after ``->``."""

    role: str
    text: str


class StateValueDocument(BaseModel):
    """Value of the state of a key as its ``repr``. ``messages``: those of a conversation."""

    name: str
    text: str
    messages: list[MessageDocument]


class KeyCallDocument(BaseModel):
    """Call that was made for a record. ``kind``: model, event or call; what it asks of a model is in ``messages``, else
    in ``request``. ``answered``: the log has its outcome."""

    service: str
    kind: str
    effect: bool
    model: str = ""
    settings: dict[str, str] = {}
    messages: list[MessageDocument] = []
    request: str = ""
    text: str = ""
    tool_calls: list[str] = []
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    currency: str = ""
    result: str | None = None
    error: str | None = None
    answered: bool


class KeyRecordDocument(BaseModel):
    """Record as its ``repr``. ``number``: of the task's input since the checkpoint, null if it is not known."""

    number: int | None
    record: str


class KeyStepDocument(BaseModel):
    """Passage of a key through a step. ``event``: record, event or timer. ``calls_as_before``: calls that an earlier
    passage has, because the function ran again when its event came. ``open``: its call is under way."""

    step: str
    event: str
    key: str
    records: list[KeyRecordDocument]
    before: list[StateValueDocument]
    after: list[StateValueDocument]
    calls: list[KeyCallDocument]
    calls_as_before: int
    result: str | None
    error: str | None
    awaits: str | None
    open: bool
    notes: list[str]


class KeyStateDocument(BaseModel):
    """State of a key at a step now."""

    step: str
    state: list[StateValueDocument]


class KeyDocument(BaseModel):
    """Course of a key since the checkpoint ``epoch``, as a replay of it has shown. ``costs``: by currency.
    ``as_recorded``: the replay did what the task did."""

    job: str
    task: str
    epoch: int
    steps: list[KeyStepDocument]
    states: list[KeyStateDocument]
    calls: int
    prompt_tokens: int
    completion_tokens: int
    costs: dict[str, float]
    error: str | None
    open_call: str | None
    as_recorded: bool
    notes: list[str]


class PeekRequest(BaseModel):
    """Request of the next rows that a step emits. ``count``: the largest number of them."""

    step: str
    count: int = Field(default=5, ge=1, le=PEEK_ROWS_MAX)


class PeekedRows(BaseModel):
    """Rows that a step has just emitted, each as its ``repr``, cut at 2,000 characters. They may be in no checkpoint
    yet. Fewer than requested: no more came in time."""

    rows: list[str]


class KillRequest(BaseModel):
    """Request to kill the process of a task, such as "count/0"."""

    task: str


def slot_text(slot: int) -> str:
    """Returns the id of a slot in hex, because JavaScript has no integers of 64 bits."""
    return f"{slot:016x}" if slot else ""
