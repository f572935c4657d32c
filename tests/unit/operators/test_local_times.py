"""Local times without a UTC offset: the instants that Polars gives them, or an error of their record."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pandas
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.core.model.options import Options
from clonos.operators.event_time.local_times import Ambiguous, LocalTimeError, LocalTimes, NonExistent
from clonos.operators.event_time.timestamps import TimestampError, Unit, event_time_ns
from tests.unit.operators.driver import Given, Outbox, Run

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]
TIMES = st.one_of(
    st.datetimes(datetime(1950, 1, 1), datetime(2037, 1, 1)),
    st.datetimes(datetime(2026, 3, 29, 1), datetime(2026, 3, 29, 4)),
    st.datetimes(datetime(2026, 10, 25, 1), datetime(2026, 10, 25, 4)),
    st.datetimes(datetime(2026, 4, 5, 1), datetime(2026, 4, 5, 3)),
)


def by_polars(local: datetime, zone: str, ambiguous: Any) -> datetime | None:
    """The instant, or None where Polars has none."""
    column = polars.Series([local], dtype=polars.Datetime("us"))
    (found,) = column.dt.replace_time_zone(zone, ambiguous=ambiguous, non_existent="null")
    return None if found is None else found.astimezone(UTC)


@given(local=TIMES, zone=st.sampled_from(ZONES), ambiguous=st.sampled_from(["earliest", "latest"]))
def test_a_local_time_is_the_instant_that_polars_gives_it(local: datetime, zone: str, ambiguous: str) -> None:
    rule = LocalTimes(zone, Ambiguous(ambiguous))
    expected = by_polars(local, zone, ambiguous)
    if expected is None:
        with pytest.raises(LocalTimeError, match="never comes"):
            rule.instant(local)
        after = rule._replace(non_existent=NonExistent.SHIFT_FORWARD).instant(local)
        found = after.astimezone(UTC).replace(tzinfo=None)
        assert by_polars(after.astimezone(_zone(zone)).replace(tzinfo=None), zone, ambiguous) == after, found
        assert after.astimezone(_zone(zone)).replace(tzinfo=None) > local
    else:
        assert rule.instant(local) == expected
        if by_polars(local, zone, "null") is None:
            with pytest.raises(LocalTimeError, match="comes twice"):
                LocalTimes(zone).instant(local)


def _zone(name: str) -> Any:
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


@pytest.mark.parametrize(
    ("local", "zone", "after"),
    [
        (datetime(2026, 3, 29, 2, 30), "Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
        (datetime(2026, 3, 29, 2), "Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
        (datetime(2026, 3, 29, 2, 59, 59, 999_999), "Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
        (datetime(2026, 10, 4, 2, 10), "Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ],
)
def test_a_time_in_the_missing_hour_is_shifted_to_its_end(local: datetime, zone: str, after: datetime) -> None:
    assert LocalTimes(zone, non_existent=NonExistent.SHIFT_FORWARD).instant(local) == after


def test_pandas_not_a_time_is_no_timestamp() -> None:
    with pytest.raises(TimestampError, match="the record has no timestamp: it is NaT"):
        event_time_ns(pandas.NaT, Unit.SECONDS, LocalTimes("Europe/Berlin"))


def visits(ats: list[Any], timestamps: Timestamps) -> Run:
    graph = JobGraph("visits", errors=Outbox())
    graph.source(Given([{"at": at} for at in ats]), timestamps=timestamps, parallelism=1).sink(Outbox(), name="out")
    job = Run(graph.compile(Options(), parallelism=1))
    job.finish()
    return job


def test_a_job_reads_local_times_and_reports_the_hour_that_comes_twice() -> None:
    ats = ["2023-10-29 01:30:00", "2023-10-29 02:30:00", datetime(2023, 10, 29, 3, 30), "2023-10-29T02:30:00+02:00"]
    job = visits(ats, Timestamps("at", timezone="Europe/Berlin", out_of_order="1d"))
    assert job.written["source-out"] == [{"at": ats[0]}, {"at": ats[2]}, {"at": ats[3]}]
    (error,) = job.written["errors"]
    assert error.record == {"at": ats[1]}
    assert 'comes twice in Europe/Berlin: give ambiguous="earliest" or "latest"' in error.error


def test_with_a_decision_no_local_time_is_an_error() -> None:
    ats = ["2023-10-29 02:30:00", "2023-03-26 02:30:00"]
    decided = Timestamps(
        "at", timezone="Europe/Berlin", ambiguous="latest", non_existent="shift_forward", out_of_order="365d"
    )
    assert visits(ats, decided).written == {"source-out": [{"at": at} for at in ats]}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"timezone": "Europe/Bonn"}, "timezone='Europe/Bonn', which is unknown"),
        ({"timezone": 3}, "timezone=3, which is unknown"),
        ({"timezone": "UTC", "ambiguous": "infer"}, "ambiguous='infer'"),
        ({"timezone": "UTC", "non_existent": "null"}, "non_existent='null'"),
        ({"ambiguous": "latest"}, "ambiguous='latest' without timezone="),
    ],
)
def test_a_wrong_argument_of_local_times_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidJob, match=text):
        Timestamps("at", **arguments)
