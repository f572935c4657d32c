"""Outcomes of calls in the log: value or exception exactly as the first incarnation saw it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.error import HTTPError

import pytest
from hypothesis.errors import InvalidArgument

from clonos.core.log import call_outcomes
from clonos.core.log.call_outcomes import (
    CallInDoubt,
    OutcomeMalformed,
    OutcomeTooLarge,
    OutcomeUnreadable,
    RecordedError,
    ReturnedError,
    declare_exception,
    decode_outcome,
    encode_outcome,
)
from clonos.core.model.code_location import FRAMES_MAX, user_frames, user_frames_of
from clonos.core.model.errors import ReplayDiverged
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.ports.task_failure import failure_of
from clonos.core.values import encode_value, register
from clonos_services.awaiting import CallCancelled


class Banned(Exception):
    """Built from plain values, as every error should be."""

    def __init__(self, word: str, times: int) -> None:
        super().__init__(word, times)
        self.word = word
        self.times = times

    class Twice(ValueError):
        """A class within a class."""


declare_exception(Banned)
declare_exception(Banned.Twice)


class TakesOtherArguments(Exception):
    def __init__(self, word: str) -> None:
        super().__init__(f"the word {word}")


class RefusesItsArguments(Exception):
    def __init__(self, text: str) -> None:
        if text.startswith("once"):
            super().__init__(f"twice {text}")
        else:
            raise TypeError("not again")


def outcome_of(error: Exception, **limits: int) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011  which one it is, is the question
        decode_outcome(encode_outcome("ask", error, **limits))
    return raised.value


@pytest.mark.parametrize("value", [None, True, 2**70, 1.5, "ä", b"\0", [1, (2,)], {"k": {3}}, Decimal("1.10")])
def test_a_value_is_decoded_exactly(value: object) -> None:
    outcome = decode_outcome(encode_outcome("ask", value))
    assert outcome == value
    assert type(outcome) is type(value)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no", 3),
        KeyError("word"),
        FileNotFoundError(2, "no such file", "/tmp/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        json.JSONDecodeError("expected a value", "{", 1),
        Banned("spam", 2),
        Banned.Twice("nested"),
        ReplayDiverged("map/0", 17, "STEP", "CLOCK"),
        CallInDoubt("pay", "key"),
        RecordedError("ask", "x.Y", "text"),
    ],
    ids=lambda error: type(error).__qualname__,
)
def test_an_exception_with_plain_arguments_is_raised_unchanged(error: Exception) -> None:
    again = outcome_of(error)
    assert type(again) is type(error)
    assert again.args == error.args
    assert str(again) == str(error)
    assert {name: value for name, value in vars(again).items() if not name.startswith("__")} == vars(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(object()),
        TakesOtherArguments("spam"),
        RefusesItsArguments("once"),
        type("MadeHere", (Exception,), {})("nobody finds its class"),
        ExceptionGroup("two", [ValueError("1"), ValueError("2")]),
        HTTPError("http://x", 404, "gone", None, None),  # type: ignore[arg-type]
    ],
    ids=lambda error: type(error).__qualname__,
)
def test_an_exception_that_cannot_be_encoded_is_replaced_by_a_description(error: Exception) -> None:
    described = outcome_of(error)
    assert isinstance(described, RecordedError)
    assert (described.service, described.text) == ("ask", str(error))
    assert described.type_name.endswith(type(error).__qualname__)


@register
@dataclass(eq=False)
class Why:
    score: float


@pytest.mark.parametrize("value", [float("nan"), {"score": float("nan")}, Why(1.5)], ids=repr)
def test_an_exception_is_raised_as_itself_although_its_value_equals_no_copy(value: object) -> None:
    with pytest.raises(CallCancelled) as raised:
        decode_outcome(encode_outcome("event", CallCancelled(value)))
    assert encode_value(raised.value.value) == encode_value(value)


def test_an_exception_with_extra_attributes_is_replaced_by_a_description() -> None:
    error = ValueError("x")
    error.code = 5  # type: ignore[attr-defined]
    assert isinstance(outcome_of(error), RecordedError)


def test_a_declared_class_is_found_when_its_module_has_another_name() -> None:
    made_elsewhere = type("FromTheJobFile", (Exception,), {"__module__": "job_that_travels_by_value"})
    assert isinstance(outcome_of(made_elsewhere("x")), RecordedError)
    declare_exception(made_elsewhere)
    assert type(outcome_of(made_elsewhere("x"))) is made_elsewhere


def test_a_class_that_only_the_first_incarnation_had_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded = encode_outcome("ask", Banned("spam", 2))
    monkeypatch.setattr(call_outcomes, "_declared", {})
    with pytest.raises(OutcomeUnreadable, match=r"Banned.*@service\(raises=\.\.\.\)"):
        decode_outcome(encoded)


@pytest.mark.parametrize("name", ["path", "getcwd", "sep.upper", "no.such.name", ""])
def test_only_an_exception_class_is_ever_called(name: str) -> None:
    encoded = b"\x01" + encode_value(("ask", "os", name, (), "", [], []))
    with pytest.raises(OutcomeUnreadable):
        decode_outcome(encoded)


def rebuilding(module: str, name: str, arguments: tuple[object, ...], notes: list[object]) -> bytes:
    return b"\x01" + encode_value(("ask", module, name, arguments, "", notes, []))


def test_bytes_of_a_peer_call_only_declared_or_library_classes() -> None:
    assert isinstance(outcome_of(InvalidArgument("of another package")), RecordedError)
    with pytest.raises(OutcomeUnreadable, match="InvalidArgument"):
        decode_outcome(rebuilding("hypothesis.errors", "InvalidArgument", ("x",), []))
    with pytest.raises(OutcomeUnreadable, match="RefusesItsArguments"):
        decode_outcome(rebuilding(__name__, "RefusesItsArguments", ("twice",), []))


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("builtins", "UnicodeDecodeError", ("utf-8",)),
        ("builtins", "ExceptionGroup", (1, 2)),
        ("json.decoder", "JSONDecodeError", (1, 2, 3)),
        ("clonos.core.log.call_outcomes", "RecordedError", ()),
        (__name__, "Banned", ("spam", 1, 2, 3)),
    ],
)
def test_arguments_that_a_class_does_not_take_are_malformed(
    module: str, name: str, arguments: tuple[object, ...]
) -> None:
    with pytest.raises(OutcomeMalformed, match="takes other arguments"):
        decode_outcome(rebuilding(module, name, arguments, []))


def test_notes_that_are_not_text_are_malformed() -> None:
    with pytest.raises(OutcomeMalformed, match="notes"):
        decode_outcome(rebuilding("builtins", "ValueError", (), ["text", 1]))
    with pytest.raises(OutcomeMalformed, match="notes"):
        decode_outcome(b"\x02" + encode_value(("ask", "x.Y", "text", [b""], [])))


def test_a_result_that_cannot_be_encoded_is_recorded_as_an_error() -> None:
    with pytest.raises(ReturnedError, match="cannot be recorded"):
        decode_outcome(encode_outcome("ask", object()))


def test_a_result_that_is_too_large_is_recorded_as_an_error() -> None:
    with pytest.raises(OutcomeTooLarge) as raised:
        decode_outcome(encode_outcome("ask", b"x" * 2_000, bytes_max=1_000))
    assert raised.value.limit_bytes == 1_000
    assert isinstance(outcome_of(Banned("x" * 2_000, 1), bytes_max=1_000), RecordedError)


def test_a_long_or_undecodable_text_is_shortened_and_cleaned() -> None:
    described = outcome_of(TakesOtherArguments("\udcff" + "x" * 10_000))
    assert isinstance(described, RecordedError)
    assert described.text.startswith("the word \\udcffx")
    assert described.text.endswith("characters)")
    assert len(described.text) < 5_000


def test_a_recorded_exception_names_where_it_was_raised_and_keeps_its_notes() -> None:
    def ask() -> None:
        error = ValueError("no")
        error.add_note("asked for spam")
        raise error

    with pytest.raises(ValueError, match="no") as original:
        ask()
    first, second = outcome_of(original.value).__notes__
    assert first == "asked for spam"
    assert "tests.unit.services.test_outcomes:" in second
    assert "in ask" in second


def nested(depth: int) -> None:
    if depth == 0:
        raise ValueError("no")
    nested(depth - 1)


def test_a_recorded_exception_keeps_its_frames_of_user_code_for_the_report_of_a_failure() -> None:
    with pytest.raises(ValueError, match="no") as original:
        nested(1)
    frames = failure_of(TaskId(0), Incarnation(1), outcome_of(original.value)).frames
    assert frames.splitlines()[-4:] == user_frames(original.value).splitlines()[-4:]
    assert frames.endswith(', in nested\n    raise ValueError("no")')


def test_the_recorded_frames_are_limited() -> None:
    with pytest.raises(ValueError, match="no") as original:
        nested(500)
    encoded = encode_outcome("ask", original.value)
    assert len(encoded) < 20_000
    with pytest.raises(ValueError, match="no") as decoded:
        decode_outcome(encoded)
    again = [frame.function for frame in user_frames_of(decoded.value)]
    assert again == [again[0], *["nested"] * FRAMES_MAX]


def test_the_frames_of_generated_code_with_odd_names_are_recorded() -> None:
    named: dict[str, Any] = {"__name__": "odd\udcff"}
    exec(compile("def ask(): raise ValueError('no')", "of\udcff" + "x" * 10_000, "exec"), named)  # noqa: S102  no file has these names
    with pytest.raises(ValueError, match="no") as original:
        named["ask"]()
    encoded = encode_outcome("ask", original.value)
    assert len(encoded) < 20_000
    with pytest.raises(ValueError, match="no") as decoded:
        decode_outcome(encoded)
    assert user_frames_of(decoded.value)[-1].place == "odd\\udcff:1 in ask"


def test_an_exception_that_refuses_attributes_is_recorded_with_its_frames() -> None:
    @dataclass(frozen=True)
    class Frozen(Exception):
        word: str

    declare_exception(Frozen)
    with pytest.raises(Frozen) as raised:
        raise Frozen("spam")
    again = outcome_of(raised.value)
    assert again == Frozen("spam")
    assert user_frames_of(again)[-1].source == 'raise Frozen("spam")'


@pytest.mark.parametrize("frame", [None, (), ("m:1 in f", "m.py", "1", "f", ""), ("m:1 in f", "m.py", 1, "f")])
def test_frames_of_another_form_are_malformed(frame: object) -> None:
    with pytest.raises(OutcomeMalformed, match="frames"):
        decode_outcome(b"\x01" + encode_value(("ask", "builtins", "ValueError", (), "", [], [frame])))


@pytest.mark.parametrize("encoded", [b"", b"\x07", b"\x01" + encode_value(3), b"\x02" + encode_value(("a", "b"))])
def test_malformed_outcomes_are_refused(encoded: bytes) -> None:
    with pytest.raises(OutcomeMalformed):
        decode_outcome(encoded)
