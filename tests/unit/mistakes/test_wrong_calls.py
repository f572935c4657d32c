"""Calls of public functions and steps whose arguments do not fit: each says how to write the call."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import clonos
from clonos.core.model.wrong_calls import WrongCall, explains_calls
from tests.harnesses.mistakes import check, describe, run_file

AT_RECORDS: Final = frozenset({"clock", "http", "metrics", "random", "uuid4", "logger"})
"""Services that a step asks for each record: their calls are Python's own."""

RESULTS: Final = frozenset({"masked", "without"})

WRONG = {
    "rows.map(str, paralelism=2)": "map() has no keyword 'paralelism'. Did you mean parallelism?",
    "rows.key_by('a').count(effects=True)": "count() has no keyword 'effects'. It takes: name,"
    " parallelism, standby, split_hot_keys.",
    "rows.map()": "map() lacks 'function'. Write map(function, par=, name=, parallelism=, standby=, effects="
    ", intercept=).",
    "rows.join_as_of(rows, on='a', tolerence=1)": "join_as_of() has no keyword 'tolerence'. Did you mean tolerance?",
    "files.csv('x', sep=';')": "files.csv() has no keyword 'sep'. Did you mean delimiter?",
    "files.csv('x', usecols=['a'])": "files.csv() has no keyword 'usecols'. Did you mean columns?",
    "files.jsonl('x', dtype=dict)": "files.jsonl() has no keyword 'dtype'. Did you mean schema?",
    "kafka.source('t', bootstrap_servers='x')": "kafka.source() has no keyword 'bootstrap_servers'. Did you mean serv",
    "kafka.source('t')": "kafka.source() lacks 'servers'. Write kafka.source(topics, decode=, schema=, ",
    "nats.source('s', url='nats://h', subject='a')": "nats.source() has no keyword 'subject'. Did you mean subjects?",
    "kafka.sink('t', value_serializer=str)": "kafka.sink() has no keyword 'value_serializer'. Did you mean encode?",
    "Job('a').source(values([1]), paralelism=2)": "source() has no keyword 'paralelism'. Did you mean parallelism?",
    "rows.sink(stdout(), nme='x')": "sink() has no keyword 'nme'. Did you mean name?",
    "rows.key_by('a').count(uid='x')": "count() has no keyword 'uid'. Did you mean name?",
    "rows.key_by('a').window(Tumbling('1s'), allowed_lateness='1s')": "window() has no keyword 'allowed_lateness'. Did",
    "rows.join(rows, on='a', how='left', tolerance='1s')": "join() has no keyword 'tolerance'. Did you mean between?",
    "rows.on(hots='a')": "on() has no keyword 'hots'. Did you mean host?",
    "rows.union(rows, name='x')": "union() has no keyword 'name'. It takes no keyword.",
    "Sliding('10s', slide='1s')": "Sliding() has no keyword 'slide'. Did you mean every?",
    "Session(timeout='1s')": "Session() has no keyword 'timeout'. Did you mean gap?",
    "Timestamps('at', units='ms')": "Timestamps() has no keyword 'units'. Did you mean unit?",
    "Timestamps('at', max_out_of_orderness='1s')": "Timestamps() has no keyword 'max_out_of_orderness'. Did you mean o",
    "ValueState('n', defualt=0)": "ValueState() has no keyword 'defualt'. Did you mean default?",
    "agg.quantile('a', quantile=0.5)": "quantile() has no keyword 'quantile'. It takes: of, q, error.",
    "col('a').round(digits=2)": "round() has no keyword 'digits'. It takes: ",
    "files.csv()": "files.csv() lacks 'path'. Write files.csv(path, columns=, schema=, ",
    "Tumbling()": "Tumbling() lacks 'size'. Write Tumbling(size, time=, offset=, timezone=).",
    "Job()": "Job() lacks 'name'. Write Job(name, errors=, limit=, **options).",
    "Job('a', 'b')": "Job() takes 1 argument without a name, and gets 2. Write Job(name, errors=,",
    "Job('a').source(values([1]), 4)": "source() takes 1 argument without a name, and gets 2. Write source(source,",
    "rows.sink(stdout(), stdout())": "sink() takes 1 argument without a name, and gets 2.",
    "agg.sum_('a', 'b')": "sum_() takes 1 argument without a name, and gets 2. Write sum_(of=).",
    "rows.sink(stdout(), errors=stdout())": "sink() has no keyword 'errors'. It is an option of the whole job: write",
    "rows.map(str, checkpoint_every='1s')": "It is an option of the whole job: write Job(name, checkpoint_every=...).",
    "at_end(1)": "at_end() takes no argument without a name, and gets 1. Write at_end().",
    "files.csv('x', path='y')": "files.csv() gets 'path' twice, by its place and by its name. Write",
}


@pytest.mark.parametrize("code", WRONG)
def test_a_call_that_does_not_fit_is_answered_by_the_right_one(code: str) -> None:
    check(describe(f"rows = Job('etl').source(values([{{'a': 1}}]))\n{code}"), WRONG[code])


def _public() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in clonos.__all__:
        found = getattr(clonos, name)
        if name in AT_RECORDS:
            continue
        if isinstance(found, ModuleType):
            names = [member for member in found.__all__ if member not in RESULTS]
            yield from ((f"{name}.{member}", getattr(found, member)) for member in names)
        else:
            yield name, found
        if inspect.isclass(found) and issubclass(found, clonos.Job | clonos.Stream | clonos.KeyedStream):
            yield from ((f"{name}.{key}", value) for key, value in inspect.getmembers(found) if not key.startswith("_"))


def _refusal(function: Callable[..., Any]) -> BaseException:
    with pytest.raises(Exception) as raised:  # noqa: PT011  the class is what is asked
        function(no_such_keyword=1)
    return raised.value


def test_every_public_function_and_step_explains_its_calls() -> None:
    functions = {name: found for name, found in _public() if inspect.isfunction(found)}
    assert len(functions) > 150
    plain = [name for name, function in functions.items() if not isinstance(_refusal(function), WrongCall)]
    assert plain == [], "decorate them with explains_calls"


def test_an_error_inside_a_function_stays_as_it_is() -> None:
    @explains_calls
    def outer(number: int) -> int:
        return int(number=number)  # type: ignore[call-overload, no-any-return]

    def taken(function: Callable[[], object]) -> object:
        return explains_calls(lambda: function())()

    with pytest.raises(TypeError) as raised:
        taken(lambda: len(5))  # type: ignore[arg-type]
    assert not isinstance(raised.value, WrongCall)


def test_a_wrong_call_is_a_type_error_that_survives_pickling() -> None:
    with pytest.raises(TypeError) as raised:
        clonos.Tumbling(siez="1s")  # type: ignore[call-arg]
    for other in (pickle.loads(pickle.dumps(raised.value)), copy.copy(raised.value)):  # noqa: S301
        assert str(other) == "Tumbling() has no keyword 'siez'. Did you mean size?"


def test_functions_that_explain_their_calls_keep_their_signatures_and_are_pickled_by_name() -> None:
    assert list(inspect.signature(clonos.files.csv).parameters)[:2] == ["path", "columns"]
    assert pickle.loads(pickle.dumps(clonos.files.csv)) is clonos.files.csv  # noqa: S301
    assert (clonos.Stream.map.__doc__ or "").startswith("Applies")


def test_a_wrong_call_in_a_job_file_names_the_line_of_the_user(tmp_path: Path) -> None:
    printed = run_file(
        tmp_path,
        """
        from clonos import Job, files
        job = Job("etl")
        job.source(files.csv("x.csv", sep=";"))
        """,
    )
    check(printed, "files.csv() has no keyword 'sep'. Did you mean delimiter?", "line 4, in <module>", code=1)
