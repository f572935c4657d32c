"""Where the plan knows the columns of a stream, a wrong name or type is refused in the line that names it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos import files
from clonos.agg import count, last, max_, mean, quantile, sum_, top_k
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.windows import Session, Tumbling
from clonos.core.model.options import Options
from clonos.core.values.key_encoding import KeyUnsupported, encode_key
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Outbox, run

LEFT = pa.schema(
    [
        ("user", pa.int32()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("cents", pa.decimal128(9, 2)),
        ("at", pa.int64()),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.int64())),
    ]
)
RIGHT = pa.schema([("user", pa.large_string()), ("id", pa.int64()), ("at", pa.int64())])
BETWEEN: Any = {"between": (0, 1)}


class Described(ColumnsOf):
    """Columns that the plan knows."""

    def column_schema(self) -> Any:
        return self.schema


def sides() -> tuple[Any, Any]:
    graph = JobGraph("job")
    left, right = (graph.source(Described([], schema), timestamps=Timestamps("at")) for schema in (LEFT, RIGHT))
    return left, right


def panes(stream: Any) -> Any:
    return stream.key_by("user").window(Tumbling("1h"))


REFUSED: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda a, b: a.key_by("usr"), "step key_by takes the column 'usr' for its key.*no column 'usr'.*mean user\\?"),
    (lambda a, b: a.key_by("user", "price", name="by"), "step by takes the column 'price', of the type double.*round"),
    (lambda a, b: a.key_by("cents"), "'cents', of the type decimal128\\(9, 2\\), for its key.*cast\\(str\\)"),
    (lambda a, b: a.key_by("local"), "Without a time zone.*cast\\(datetime\\)"),
    (lambda a, b: a.key_by("tags"), "of the type list<item: int64>, for its key"),
    (lambda a, b: a.key_by("user").aggregate(n=sum_("prise")), "step aggregate has sum_\\('prise'\\).*mean price\\?"),
    (lambda a, b: a.key_by("user").aggregate(n=sum_("name")), "'name' is of the type string, which is none of numbers"),
    (lambda a, b: a.aggregate(n=mean("zzz"), name="all"), "step all has mean.*has the columns user: int32, name: str"),
    (lambda a, b: panes(a).sum("nme", name="total"), "step total has sum_\\('nme'\\), and there is no column 'nme'"),
    (lambda a, b: panes(a).aggregate(n=sum_("local"), m=top_k(1)), "'local' is of the type timestamp"),
    (lambda a, b: a.key_by("user").window(Session("1s")).aggregate(n=quantile("nme", 0.5)), "no column 'nme'"),
    (lambda a, b: a.window(Tumbling("1h")).aggregate(n=max_("nme")), "has max_.*no column 'nme'"),
    (lambda a, b: a.key_by("name").top_k(3, "pric", rank="place"), "step top_k ranks by 'pric'"),
    (lambda a, b: a.key_by("name").deduplicate("pric"), "step deduplicate compares 'pric'"),
    (lambda a, b: a.with_timestamps("att"), "with_timestamps takes timestamps from 'att'.*mean at\\?"),
    (lambda a, b: a.join(b, on="usr", name="both", **BETWEEN), "step both takes the column 'usr' for its key"),
    (lambda a, b: a.join(b, on="user", **BETWEEN), "of the type int32, with 'user' of the right one.*large_string"),
    (lambda a, b: a.lookup(b, on=["name", "user"]), "there is no column 'name'"),
    (lambda a, b: a.lookup(b, on=("name", "id")), "step lookup joins the column 'name'.*Convert one of them"),
    (lambda a, b: a.key_by("name").join_as_of(b.key_by("id")), "step join_as_of joins the column 'name'"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_a_wrong_column_is_refused_where_a_step_names_it(build: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        build(*sides())


def test_timestamps_of_a_source_in_a_missing_column_are_refused() -> None:
    with pytest.raises(
        InvalidJob, match=r"step s has timestamps='att', and there is no column 'att'\. Did you mean at\?"
    ):
        JobGraph("job").source(Described([], LEFT), name="s", timestamps="att")


GIVEN: list[Callable[[Any, Any], object]] = [
    lambda a, b: a.join(b, on=("user", "id"), **BETWEEN),  # int32 and int64
    lambda a, b: a.lookup(b, on=("name", "user")),  # string and large_string
    lambda a, b: (
        panes(a).aggregate(n=count(), most=max_("price")).key_by(lambda each: each.key).aggregate(n=last("window"))
    ),
    lambda a, b: panes(a).aggregate(n=count(), most=max_("price")).key_by("user").aggregate(n=sum_("n")),
    lambda a, b: panes(a).aggregate(n=sum_("cents"), m=mean("user")),
    lambda a, b: a.key_by(lambda row: row["name"]).deduplicate("price"),
]


@pytest.mark.parametrize("build", GIVEN, ids=["widths", "texts", "rows", "columns", "numbers", "function"])
def test_columns_that_fit_are_taken(build: Any) -> None:
    assert build(*sides()) is not None


@pytest.mark.parametrize("method", ["join", "lookup"])
def test_a_join_of_files_whose_keys_are_never_equal_is_refused_when_the_plan_has_their_columns(
    method: Any, tmp_path: Path
) -> None:
    (tmp_path / "left.csv").write_text("user,at\n1,0\n")
    (tmp_path / "right.csv").write_text("user,at\nann,0\n")
    graph = JobGraph("job")
    left, right = (graph.source(files.csv(f"{tmp_path}/{side}.csv")) for side in ("left", "right"))
    rule: Any = {"ttl": "1h"} if method == "join" else {}
    getattr(left, method)(right, on="user", name="both", **rule).sink(Outbox())
    with pytest.raises(InvalidJob, match=r"the step both joins the column 'user' .*int64.*string.*never equal"):
        graph.compile(Options())


def test_widths_of_whole_numbers_are_equal_as_keys_of_a_join() -> None:
    graph = JobGraph("job")
    types = [pa.int8(), pa.uint64()]
    streams = [
        graph.source(ColumnsOf([{"id": 7}], pa.schema([("id", type_)])), parallelism=1, name=f"s{place}")
        for place, type_ in enumerate(types)
    ]
    streams[0].join(streams[1], on="id", ttl="1h").sink(Outbox())
    assert list(run(graph).written.values()) == [[({"id": 7}, {"id": 7})]]


def test_a_decimal_key_of_rows_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(KeyUnsupported, match=r"Decimal, which cannot be a key. Use int\(x \* 100\)"):
        encode_key(Decimal("1.0"))
