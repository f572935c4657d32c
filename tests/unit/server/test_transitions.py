"""The table of a job's status: each row, what it refuses, and that an end is an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.job.job_status import JobStatus
from clonos.server.register.transitions import TRANSITIONS, JobEvent, next_status

TABLE = """
status     runs       recovers   fails      lost       savepoint  stop       cancel     finished aborted  failed
CREATED    RUNNING    RECOVERING FAILING    CREATED    -          CREATED    CANCELLING FINISHED CANCELED FAILED
RUNNING    RUNNING    RECOVERING FAILING    RECOVERING RUNNING    RUNNING    CANCELLING FINISHED CANCELED FAILED
RECOVERING RUNNING    RECOVERING FAILING    RECOVERING RECOVERING RECOVERING CANCELLING FINISHED CANCELED FAILED
FAILING    RUNNING    RECOVERING FAILING    RECOVERING -          -          CANCELLING FINISHED CANCELED FAILED
CANCELLING CANCELLING CANCELLING CANCELLING CANCELED   -          -          CANCELLING FINISHED CANCELED CANCELED
FAILED     FAILED     FAILED     FAILED     FAILED     -          -          -          FAILED   FAILED   FAILED
CANCELED   CANCELED   CANCELED   CANCELED   CANCELED   -          -          -          CANCELED CANCELED CANCELED
FINISHED   FINISHED   FINISHED   FINISHED   FINISHED   -          -          -          FINISHED FINISHED FINISHED
"""
EVENTS = {"lost": JobEvent.DRIVER_LOST, **{event.value: event for event in JobEvent}}
HEAD, *LINES = [line.split() for line in TABLE.strip().splitlines()]
ROWS = [
    (JobStatus(line[0]), EVENTS[name], None if cell == "-" else JobStatus(cell))
    for line in LINES
    for name, cell in zip(HEAD[1:], line[1:], strict=True)
]


@pytest.mark.parametrize(("status", "event", "expected"), ROWS)
def test_an_event_leads_to_the_status_of_its_row(
    status: JobStatus, event: JobEvent, expected: JobStatus | None
) -> None:
    assert next_status(status, event) is expected


def test_the_table_has_every_status_and_every_event() -> None:
    assert {(status, event) for status, event, _ in ROWS} == {(s, e) for s in JobStatus for e in JobEvent}
    assert set(TRANSITIONS) == set(JobStatus)


@given(st.lists(st.sampled_from(JobEvent), max_size=30))
def test_a_job_that_has_ended_never_changes_again(events: list[JobEvent]) -> None:
    status, end = JobStatus.CREATED, None
    for event in events:
        status = next_status(status, event) or status
        assert end is None or status is end
        end = status if status.is_final else None
