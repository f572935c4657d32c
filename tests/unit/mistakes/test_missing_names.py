"""Methods and names of other libraries are answered by what to use instead."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import pytest

import clonos
from clonos import Job, Tumbling, values
from clonos.cli import main
from tests.harnesses.mistakes import check, describe, run_file
from tests.tidy.source import texts

STREAM = "Job('etl').source(values([1]))"


@pytest.mark.parametrize(
    ("code", "sentences"),
    [
        (f"{STREAM}.co_group({STREAM})", ("a Stream has no co_group", "join(other, on=", "connect(other)")),
        (f"{STREAM}.key_by(str).merge_ordered({STREAM})", ("a KeyedStream has no merge_ordered", "before key_by")),
        (f"{STREAM}.stateful_map(str)", ("a Stream has no stateful_map", "call key_by")),
        (f"{STREAM}.count()", ("a Stream has no count", "key_by(lambda record: None)")),
        (f"{STREAM}.mapValues(str)", ("a Stream has no mapValues", "Use map(...)")),
        (f"{STREAM}.groupByKey()", ("a Stream has no groupByKey", "Use key_by(...)")),
        (f"{STREAM}.to('topic')", ("a Stream has no to", ".sink(...)")),
        (f"{STREAM}.print()", ("a Stream has no print", "sink(stdout())")),
        (f"{STREAM}.flatmap(str)", ("a Stream has no flatmap", "Did you mean flat_map?")),
        (f"{STREAM}.sum('n')", ("a Stream has no sum", "aggregate(total=sum_('field'))")),
        (f"{STREAM}.withWatermark('at', '5s')", ("a Stream has no withWatermark", "job.source(..., timestamps=...)")),
        (f"{STREAM}.dropDuplicates(['id'])", ("a Stream has no dropDuplicates", "deduplicate(key, within=")),
        (f"{STREAM}.par(4)", ("a Stream has no par", "map(function, par=4)")),
        (f"{STREAM}.get_side_output('late')", ("a Stream has no get_side_output", "Use side_output(tag).")),
        (f"{STREAM}.key_by(str).window(Tumbling('5s')).mean()", ("a WindowedStream has no mean", "mean=mean('field')")),
        (f"{STREAM}.key_by(str).map(str)", ("a KeyedStream has no map", "before key_by")),
        (f"{STREAM}.key_by(str).max()", ("a KeyedStream has no max", "reduce(max)")),
        (f"{STREAM}.key_by(str).window(Tumbling('5s')).map(str)", ("a WindowedStream has no map", "Aggregate")),
        (f"{STREAM}.key_by(str).count_window(5)", ("has no count_window", "CountTumbling(100)")),
        (f"{STREAM}.repartition(4)", ("a Stream has no repartition", "parallelism=4", "rebalance()")),
        (f"{STREAM}.cache()", ("a Stream has no cache", "several steps may read one stream")),
        (f"{STREAM}.returns(int)", ("a Stream has no returns", "keep their Python types")),
        (f"{STREAM}.selectExpr('a + 1')", ("a Stream has no selectExpr", "There is no SQL", "select(col('a') * 2)")),
        (f"{STREAM}.writeStream", ("a Stream has no writeStream", "End the stream with .sink(...)")),
        (f"{STREAM}.fillna(0)", ("a Stream has no fillna", "fill_null(0)")),
        (f"{STREAM}.key_by(str).window(Tumbling('5s')).trigger(each(5))", ("has no trigger", "trigger=each(5)")),
        (f"{STREAM}.key_by(str).window(Tumbling('5s')).take(5)", ("has no take", ".count().take(5)")),
        (f"rows = {STREAM}\nrows.connect(rows.map(str)).map(str)", ("has no map", "process_first and process_second")),
        ("Job('etl').from_elements(1, 2)", ("a Job has no from_elements", "source(values([...]))")),
        ("Job('etl').input('in', values([1]))", ("a Job has no input", "Use source(...), which returns a stream")),
        ("Job('etl').readStream", ("a Job has no readStream", "files.csv(")),
        ("from clonos import TumblingEventTimeWindows", ("clonos has no TumblingEventTimeWindows", 'Tumbling("10s")')),
        ("from clonos import OutputTag", ("clonos has no OutputTag", 'Tag("late")')),
        ("from clonos import sum_", ("clonos has no sum_", "from clonos import agg")),
        ("agg.sum('a')", ("the module clonos.agg has no sum", "Use sum_.")),
        ("from clonos.agg import avg", ("clonos.agg has no avg", "Use mean.")),
        ("files.json('x')", ("the module clonos.files has no json", "Use jsonl")),
        ("files.parqet('x')", ("the module clonos.files has no parqet", "Did you mean parquet?")),
        ("from clonos import kafka; kafka.consumer('x')", ("clonos.kafka has no consumer", "Use source.")),
        ("from clonos import postgres; postgres.cdc('x')", ("clonos.postgres has no cdc", "Use changes.")),
        ("from clonos import web; web.xyz", ("clonos.web has no xyz", "It has: ", "websocket")),
        ("import clonos; clonos.Dataflow", ("has no Dataflow", 'Job("name")')),
        ("Job('etl').map(str)", ("a Job has no map", "job.source(")),
        ("Job('etl').execute()", ("a Job has no execute", "Use run()")),
        ("Job('etl').xyz", ("a Job has no xyz", "It has: explain, name, run, source, start")),
        ("from clonos import SessionWindow", ("clonos has no SessionWindow", "Use Session(")),
        ("from clonos import Tumblin", ("clonos has no Tumblin", "Did you mean Tumbling?")),
        ("import clonos; clonos.Hopping", ("the package clonos has no Hopping", "Sliding")),
    ],
)
def test_a_missing_name_is_answered_by_what_to_use(code: str, sentences: tuple[str, ...]) -> None:
    check(describe(code), *sentences)


def test_a_missing_method_in_a_job_file_names_the_line_of_the_user(tmp_path: Path) -> None:
    printed = run_file(
        tmp_path,
        """
        from clonos import Job, values
        job = Job("etl")
        numbers = job.source(values([1])).key_by(str)
        numbers.map(str)
        """,
    )
    check(printed, "a KeyedStream has no map", "line 5, in <module>", "numbers.map(str)", code=1)


def test_a_wrong_import_in_a_job_file_is_one_sentence(tmp_path: Path) -> None:
    check(
        run_file(tmp_path, "from clonos import SessionWindow"),
        "clonos has no SessionWindow",
        "from clonos import",
        code=1,
    )


def test_hints_leave_hasattr_copy_and_pickle_as_they_are() -> None:
    stream = Job("etl").source(values([1]))
    assert not hasattr(stream, "merge")
    assert not hasattr(clonos, "SessionWindow")
    assert not hasattr(clonos, "no_such_name")
    assert getattr(stream, "merge", "absent") == "absent"
    assert type(copy.copy(stream)) is type(stream)
    with pytest.raises(AttributeError) as missing:
        stream.merge  # type: ignore[attr-defined]  # noqa: B018
    assert str(pickle.loads(pickle.dumps(missing.value))) == str(missing.value)  # noqa: S301
    assert stream.key_by(str).window(Tumbling("1s")) is not None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--parallelism", "2"], "--option parallelism=2"),
        (["--checkpoint-every=1s"], "--option checkpoint_every=1s"),
        (["--parallel", "2"], "--option parallelism=2"),
        (["--nothing", "2"], "unrecognized arguments: --nothing 2\n"),
        (["--overwr"], "unrecognized arguments: --overwr. Did you mean --overwrite?\n"),
        (["--metricsport=9"], "Did you mean --metrics-port=9?\n"),
    ],
)
def test_an_option_of_the_job_on_the_command_line_is_answered_by_how_to_set_it(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "job.py", *arguments])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    ["status words --js", "state ls store --js", "serve --fold x", "chaos run domain --simul", "demo --sec 1"],
)
def test_no_command_takes_an_abbreviated_option(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    assert re.search(r"unrecognized arguments: --\w+.*Did you mean --", capsys.readouterr().err)


def test_every_parser_is_exact() -> None:
    created = re.compile(r"argparse\.ArgumentParser\((?!.*allow_abbrev=False)")
    assert [path for path, text in texts() if path.endswith(".py") and created.search(text)] == []
