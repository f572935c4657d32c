"""Outcome of a call as the log carries it: a value, or an exception that replay raises again (protocol 2).

Rules:

- Live and replay see the same object: the incarnation that made the call also gets what is decoded from the bytes.
- The form of an exception is decided when it is recorded. It is rebuilt as its own class if that class is declared
  (``declare_exception``), Python's or this library's, and plain arguments make an equal exception; otherwise it becomes
  a ``RecordedError``. Decoding imports nothing, and bytes of a peer cannot call any other class.
- The innermost frames of user code are recorded with an exception, at most 20, and reports of its error show them.
- What the call has used stands before either form, if there is something (``call_usage``).
- Every outcome can be recorded: a value without an encoding, or beyond the limit, becomes an exception.
"""

from __future__ import annotations

import sys
from types import ModuleType, TracebackType
from typing import Any, Final

from clonos.core.model.code_location import FRAMES_MAX, UserFrame, keep_frames, place_of, user_frames_of
from clonos.core.model.errors import EnvironmentFault, JobError, PeerError
from clonos.core.values import decode_value, encode_value

OUTCOME_BYTES_MAX: Final = 16 << 20
TEXT_CHARACTERS_MAX: Final = 4_096
NOTE_FRAMES_MAX: Final = 3
FRAME_CHARACTERS_MAX: Final = 200
"""Of each text of a frame: a limit for a long path, and for a long line."""

_VALUE: Final = b"\x00"
_REBUILT: Final = b"\x01"  # (service, module, qualified name, arguments, text, notes, frames)
_DESCRIBED: Final = b"\x02"  # (service, type name, text, notes, frames)
_USING: Final = b"\x03"  # length of the usage, usage, then one of the forms above
_LENGTH_BYTES: Final = 4

_LIBRARIES: Final = sys.stdlib_module_names | {"clonos", "clonos_chaos", "clonos_services", "clonos_standby"}

_FRAME: Final = (str, str, int, str, str)
"""Types of the fields of a ``UserFrame``."""

_declared: dict[tuple[str, str], type[Exception]] = {}


RAISED_IN_CALL: Final = "raised in a recorded call, at"
"""Begin of the note of an exception that a recorded call has raised."""


class RecordedError(EnvironmentFault):
    """Exception in place of a service's exception that is undeclared or cannot be rebuilt, both live and in replay."""

    service: str
    type_name: str
    text: str

    def __str__(self) -> str:
        return (
            f"{self.service} raised {self.type_name}: {self.text}."
            " To catch its own class, raise an exception that is built from plain values and declare it with"
            " @service(raises=...)."
        )


class CallInDoubt(EnvironmentFault):
    """Error for a call with an external effect whose outcome is unknown, because the process died during it."""

    service: str
    key: str

    def __str__(self) -> str:
        return (
            f"it is unknown whether the call of {self.service} with the key {self.key} took place: the process died"
            " during it. Give the call reconcile=, which asks the external system for this key, or declare that it may"
            " be repeated (idempotent=True)."
        )


class CallNeverHappened(EnvironmentFault):
    """Signal from ``reconcile`` that the external system does not know a call in doubt.

    The call is made, with its key.
    """

    text: str = ""


class ReturnedError(JobError):
    """Error for a service that returned a value without an encoding."""

    problem: str

    def __str__(self) -> str:
        return (
            f"the value that the call returned cannot be recorded: {self.problem}"
            " Return plain values (docs/quick-start.md)."
        )


class OutcomeTooLarge(JobError):
    """Error for a call that returned more bytes than an entry of the log may have."""

    actual_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"the call returned {self.actual_bytes} bytes, and the limit is {self.limit_bytes},"
            " because every process downstream keeps a copy. Return only the part that the job needs."
        )


class OutcomeUnreadable(JobError):
    """Error for a recorded exception of a class that this process does not know."""

    service: str
    class_name: str

    def __str__(self) -> str:
        return (
            f"{self.service} raised {self.class_name} in an earlier incarnation, but this class is not declared here,"
            " so replay cannot raise it. Declare it with @service(raises=...): then every slot has it."
        )


class OutcomeMalformed(PeerError):
    """Error for bytes of a ``CALL`` or ``COMPLETION`` entry that are no valid outcome."""

    reason: str

    def __str__(self) -> str:
        return f"the recorded outcome of a call is malformed: {self.reason}."


def declare_exception(exception_class: type[Exception]) -> None:
    """Lets exceptions of this class be rebuilt. Python's and this library's exceptions need no declaration."""
    _declared[exception_class.__module__, exception_class.__qualname__] = exception_class


def encode_outcome(service: str, outcome: object, *, bytes_max: int = OUTCOME_BYTES_MAX) -> bytes:
    """Returns the bytes of the value that a call of ``service`` returned, or of the exception that it raised.

    Never raises.
    """
    if isinstance(outcome, Exception):
        return _encode_exception(service, outcome, bytes_max)
    try:
        encoded = _VALUE + encode_value(outcome)
    except Exception as problem:  # noqa: BLE001  the call took place, so the codec's error becomes its outcome
        return _encode_exception(service, ReturnedError(_shortened(str(problem))), bytes_max)
    if len(encoded) > bytes_max:
        return _encode_exception(service, OutcomeTooLarge(len(encoded), bytes_max), bytes_max)
    return encoded


def with_usage(outcome: bytes, usage: bytes) -> bytes:
    """Returns an outcome together with what the call has used, encoded."""
    return _USING + len(usage).to_bytes(_LENGTH_BYTES, "big") + usage + outcome


def usage_part(outcome: bytes) -> bytes:
    """Returns what an outcome has of what the call has used, empty if it has nothing."""
    return outcome[1 + _LENGTH_BYTES : _end_of_usage(outcome)] if outcome[:1] == _USING else b""


def without_usage(outcome: bytes) -> bytes:
    """Returns an outcome without what the call has used."""
    return outcome[_end_of_usage(outcome) :] if outcome[:1] == _USING else outcome


def _end_of_usage(outcome: bytes) -> int:
    return 1 + _LENGTH_BYTES + int.from_bytes(outcome[1 : 1 + _LENGTH_BYTES], "big")


def is_value(encoded: bytes) -> bool:
    """Returns whether an outcome is a value, and not an exception."""
    return without_usage(encoded)[:1] == _VALUE


def decode_outcome(encoded: bytes) -> object:
    """Returns the value, or raises the exception, that was recorded.

    Live, call it outside the ``except`` block of the original exception, because replay has no ``__context__`` to show.

    Raises: OutcomeMalformed, if the bytes are no outcome.
    """
    plain = without_usage(encoded)
    kind, rest = plain[:1], plain[1:]
    if kind == _VALUE:
        return decode_value(rest)
    if kind == _REBUILT:
        raise _decode_rebuilt(rest)
    if kind == _DESCRIBED:
        service, type_name, text, notes, frames = _fields(rest, (str, str, str, list, list))
        raise _completed(RecordedError(service, type_name, text), notes, frames)
    raise OutcomeMalformed(f"it begins with {kind!r}")


def _encode_exception(service: str, exception: Exception, bytes_max: int) -> bytes:
    module, name = type(exception).__module__, type(exception).__qualname__
    text, notes, frames = error_text(exception), _notes_of(exception), _frames_of(exception)
    arguments = _rebuilding_arguments(exception)
    if arguments is not None:
        encoded = _REBUILT + encode_value((service, module, name, arguments, text, notes, frames))
        if len(encoded) <= bytes_max:
            return encoded
    return _DESCRIBED + encode_value((service, f"{module}.{name}", text, notes, frames))


def _rebuilding_arguments(exception: Exception) -> tuple[object, ...] | None:
    """Returns plain arguments from which the exception's class makes an equal exception, or None if there are none."""
    found = _class_called(type(exception).__module__, type(exception).__qualname__)
    if found is not type(exception):
        return None
    try:
        reduced = exception.__reduce__()  # the arguments of some classes differ from ``args``, for example OSError's
        if not isinstance(reduced, tuple):
            return None
        arguments = decode_value(encode_value(reduced[1]))
        assert isinstance(arguments, tuple)
        rebuilt = found(*arguments)
        is_equal = str(rebuilt) == str(exception) and _has_equal_attributes(rebuilt, exception)
    except Exception:  # noqa: BLE001  code of the user's class, or the codec, refused
        return None
    return arguments if is_equal else None


def _has_equal_attributes(one: Exception, other: Exception) -> bool:
    """Returns whether two exceptions have equal attributes, or attributes with equal bytes: a NaN equals no other."""
    attributes, others = _attributes(one), _attributes(other)
    return attributes == others or encode_value(attributes) == encode_value(others)


def _decode_rebuilt(rest: bytes) -> Exception:
    service, module, name, arguments, _text, notes, frames = _fields(rest, (str, str, str, tuple, str, list, list))
    found = _class_called(module, name)
    if found is None:
        return OutcomeUnreadable(service, f"{module}.{name}")
    try:
        rebuilt = found(*arguments)
    except Exception as problem:  # noqa: BLE001  code of the class, which took these arguments when it was recorded
        return OutcomeMalformed(f"{module}.{name} takes other arguments ({type(problem).__name__})")
    return _completed(rebuilt, notes, frames)


def _class_called(module: str, qualified_name: str) -> type[Exception] | None:
    """Returns the exception class of this name, if it may be rebuilt and its module is loaded.

    Runs no code of the module.
    """
    if (module, qualified_name) in _declared:
        return _declared[module, qualified_name]
    if module.partition(".")[0] not in _LIBRARIES:
        return None
    found: object = sys.modules.get(module)
    for part in qualified_name.split("."):
        if not isinstance(found, (ModuleType, type)):
            return None
        found = vars(found).get(part)  # not getattr, which may run code of the module
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _fields(rest: bytes, types: tuple[type, ...]) -> tuple[Any, ...]:
    fields = decode_value(rest)
    if not isinstance(fields, tuple) or tuple(type(field) for field in fields) != types:
        raise OutcomeMalformed("its fields are not those of an exception")
    *_, notes, frames = fields
    if not all(type(note) is str for note in notes):
        raise OutcomeMalformed("its notes are no text")
    if not all(type(frame) is tuple and tuple(map(type, frame)) == _FRAME for frame in frames):
        raise OutcomeMalformed("its frames are none of a traceback")
    return fields


def _attributes(exception: Exception) -> dict[str, object]:
    return {name: value for name, value in vars(exception).items() if not name.startswith("__")}


def error_text(exception: Exception) -> str:
    """Returns the text of an exception as outcomes have it: at most 4,096 characters, which can be encoded."""
    return _shortened(_text_of(exception))


def _text_of(exception: Exception) -> str:
    try:
        return str(exception)
    except Exception as problem:  # noqa: BLE001  the user's __str__
        return f"(its __str__ raised {type(problem).__name__})"


def _notes_of(exception: Exception) -> list[str]:
    notes = [_shortened(note) for note in getattr(exception, "__notes__", ()) if isinstance(note, str)]
    if frames := _innermost_frames(exception.__traceback__):
        notes.append(_shortened(f"{RAISED_IN_CALL} {frames}"))
    return notes


def _frames_of(exception: Exception) -> list[tuple[str, str, int, str, str]]:
    return [
        (_clipped(place), _clipped(file), line, _clipped(function), _clipped(source))
        for place, file, line, function, source in user_frames_of(exception)[-FRAMES_MAX:]
    ]


def _innermost_frames(traceback: TracebackType | None) -> str:
    frames: list[str] = []
    while traceback is not None:
        frames.append(place_of(traceback))
        traceback = traceback.tb_next
    return ", called from ".join(reversed(frames[-NOTE_FRAMES_MAX:]))


def _completed(exception: Exception, notes: list[str], frames: list[tuple[str, str, int, str, str]]) -> Exception:
    if notes:
        vars(exception)["__notes__"] = notes  # no add_note, which sets an attribute: a class may refuse that
    keep_frames(exception, [UserFrame(*frame) for frame in frames])
    return exception


def _clipped(text: str) -> str:
    return _encodable(text)[:FRAME_CHARACTERS_MAX]


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()  # the codec refuses lone surrogates


def _shortened(text: str) -> str:
    text = _encodable(text)
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    return f"{text[:TEXT_CHARACTERS_MAX]}... ({len(text)} characters)"
