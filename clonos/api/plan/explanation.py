"""Explanation of a job: its logical and its physical plan as data. ``docs/plan.md`` documents it as JSON."""

from __future__ import annotations

from typing import Final

import msgspec

FORMAT: Final = 1
"""Number of the JSON form; it changes when a key is removed or changes its meaning."""


class KeyInfo(msgspec.Struct, frozen=True):
    """Key of an exchange: the name of the ``key_by`` step, and the field or function that gives the key."""

    name: str
    by: str


class InputInfo(msgspec.Struct, frozen=True):
    """Input of a step: the step that it reads, its side output or "" for its results, and the exchange between them."""

    step: str
    side_output: str
    exchange: str
    key: KeyInfo | None


class StateInfo(msgspec.Struct, frozen=True):
    """State of a step: what stored state has to fit."""

    kind: str
    key: str
    properties: dict[str, str]


class SourceInfo(msgspec.Struct, frozen=True):
    """Source of a step. ``splits``: their number; None if they cannot be listed now, for the reason in ``note``.

    ``columns``: those that it reads, if it leaves out others. ``bounds``: conditions that each record meets that a
    step uses; the source may leave out others.
    """

    connector: str
    splits: int | None
    is_unbounded: bool
    note: str
    columns: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()


class SinkInfo(msgspec.Struct, frozen=True):
    """Sink of a step, and what it guarantees: "checkpoint" or "immediate"."""

    connector: str
    guarantee: str
    key: tuple[str, ...]


class TimeInfo(msgspec.Struct, frozen=True):
    """Timestamps of a step's results.

    ``of`` and ``watermarks``: what a step that assigns timestamps makes them from, and its watermarks. ``is_lost``: its
    records have timestamps, its results do not.
    """

    has_timestamps: bool
    of: str
    watermarks: str
    is_lost: bool


class LimitInfo(msgspec.Struct, frozen=True):
    """Limit of a step, which ends ``sources``.

    ``position``: where they stand then. "record": after the last record that the limit needed. "step": the same, or
    further by what they read in one step. "checkpoint": after what they had read when the next checkpoint began.
    """

    records: int
    sources: tuple[str, ...]
    position: str


class StepInfo(msgspec.Struct, frozen=True):
    """Step as the user wrote it.

    ``takes`` and ``gives`` are "rows", "columns" or "". ``row_reason``: why the step turns columns into rows.
    ``schema``: the columns of its results with their types, as far as they are known before the job runs.
    """

    name: str
    kind: str
    is_named: bool
    inputs: tuple[InputInfo, ...]
    functions: tuple[str, ...]
    vertex: str
    parallelism: int
    takes: str
    gives: str
    row_reason: str
    time: TimeInfo
    state: StateInfo | None
    source: SourceInfo | None
    sink: SinkInfo | None
    limit: LimitInfo | None
    has_effects: bool
    is_unread: bool
    schema: tuple[str, ...] = ()


class VertexInfo(msgspec.Struct, frozen=True):
    """Vertex of the physical plan: steps that run in the same tasks.

    ``begins``: why its first step does not run in the vertex before it. ``standby``: "hot", "passive" or "none".
    ``keepers``: processes outside a task's own that hold its log, because it acts on something outside the job.
    ``takes_errors``: it has no step but the error output of the job.
    """

    name: str
    tasks: int
    steps: tuple[str, ...]
    begins: str
    standby: str
    standbys: int
    keepers: int
    takes_errors: bool


class ExchangeInfo(msgspec.Struct, frozen=True):
    """Exchange between two vertices; ``target`` is None if it leads out of the job. ``step``: whose results it has."""

    source: str
    target: str | None
    kind: str
    step: str
    key: KeyInfo | None


class StretchInfo(msgspec.Struct, frozen=True):
    """Steps that pass columns to each other; ``rows_from``: the steps after them that get rows or make them."""

    steps: tuple[str, ...]
    rows_from: tuple[str, ...]


class Explanation(msgspec.Struct, frozen=True):
    """Logical and physical plan of a job.

    ``errors``: the sink of records whose step raised; None without one. ``columns``: the stretches over which records
    stay in columns, longest first.
    """

    format: int
    job: str
    parallelism: int
    checkpoint_every_ms: int
    steps: tuple[StepInfo, ...]
    vertices: tuple[VertexInfo, ...]
    exchanges: tuple[ExchangeInfo, ...]
    errors: SinkInfo | None
    order: tuple[str, ...]
    warnings: tuple[str, ...]
    columns: tuple[StretchInfo, ...] = ()
