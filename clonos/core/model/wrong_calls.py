"""Calls of public functions, classes and steps whose arguments do not fit: the error says how to write the call.

Python's own ``TypeError`` names the argument and nothing else. A function that is decorated with ``explains_calls``
raises a ``WrongCall`` instead, which is a ``TypeError`` too. A right call costs one more frame, so the decorator is for
functions that describe a job, and not for those that a step calls with each record.

Keywords that several functions share are a ``TypedDict``, which they take as ``**common: Unpack[Common]``. For Python
such a function takes any keyword; the decorator makes it know the fields of the ``TypedDict``, and no others. A field
may be ``Required``. ``Annotated[Duration, "30s"]`` has a default, which the function gets if a call leaves it out.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from inspect import Parameter
from types import FunctionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Required, TypeVar, get_args, get_origin, get_type_hints

from clonos.core.model.errors import JobError
from clonos.core.model.missing_names import nearest

Target = TypeVar("Target", bound=Callable[..., Any])

UNKNOWN: Final = re.compile(r"got an unexpected keyword argument '(.*)'")
REPEATED: Final = re.compile(r"got multiple values for argument '(.*)'")
MISSING: Final = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.*)")
UNPACKED: Final = re.compile(r"Unpack\[(\w+)\]")
WRAPPED: Final = re.compile(r"Required\[(.*)\]|Annotated\[(.*), [^,\]]*\]")
TOO_MANY: Final = re.compile(r"takes .* positional arguments? but (\d+) .*given")

SHOWN_MAX: Final = 10
"""Arguments that a message shows of one function."""

STARS: Final = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
BY_PLACE: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)

HABITS: Final = {
    **dict.fromkeys(("sep", "separator", "delim"), ("delimiter",)),
    **dict.fromkeys(("bootstrap_servers", "brokers", "bootstrap", "hosts", "kafka_servers"), ("servers",)),
    **dict.fromkeys(("names", "usecols", "fields", "fieldnames", "header_names"), ("columns",)),
    **dict.fromkeys(("dtype", "dtypes", "types", "model", "record_type"), ("schema", "decode")),
    **dict.fromkeys(("deserializer", "value_deserializer", "decoder", "format"), ("decode",)),
    **dict.fromkeys(("serializer", "value_serializer", "encoder"), ("encode",)),
    **dict.fromkeys(("na_values", "nulls", "null"), ("null_values",)),
    **dict.fromkeys(("num_partitions", "num_tasks", "workers", "num_workers", "processes", "tasks"), ("parallelism",)),
    **dict.fromkeys(("concurrency", "threads", "max_workers", "num_threads"), ("capacity", "par", "parallelism")),
    **dict.fromkeys(("uid", "step_id", "label", "id", "step"), ("name",)),
    **dict.fromkeys(("group_id", "group", "consumer_group"), ("group", "group_id")),
    **dict.fromkeys(("slide", "hop", "advance_by", "step_size", "period"), ("every",)),
    **dict.fromkeys(("length", "duration", "window", "width"), ("size", "within")),
    **dict.fromkeys(("within", "interval", "tolerance"), ("within", "between", "every", "watch")),
    **dict.fromkeys(("timeout", "inactivity", "session_gap"), ("gap", "timeout")),
    **dict.fromkeys(("ttl", "state_ttl", "expire", "expires_after"), ("ttl", "within")),
    **dict.fromkeys(("allowed_lateness", "grace", "grace_period", "late_after"), ("lateness",)),
    **dict.fromkeys(("delay", "max_out_of_orderness", "watermark", "watermark_delay"), ("out_of_order",)),
    **dict.fromkeys(
        ("by", "key", "keys", "key_by", "on_key", "left_on", "partition_cols"), ("on", "by", "partition_by")
    ),
    **dict.fromkeys(("tz", "time_zone", "zone"), ("timezone",)),
    **dict.fromkeys(("url", "uri", "address", "endpoint", "server", "host"), ("url", "address", "servers", "host")),
    **dict.fromkeys(("dsn", "connection", "conninfo", "database_url"), ("url", "connect", "address")),
    **dict.fromkeys(("file", "filename", "folder", "directory", "filepath", "input"), ("path", "database")),
    **dict.fromkeys(("query", "statement"), ("sql", "query")),
    **dict.fromkeys(("n", "count", "num", "size", "nrows", "max_rows", "maximum"), ("limit", "count", "k")),
    **dict.fromkeys(("offset_reset", "auto_offset_reset", "starting_offsets", "from_offset"), ("start", "begin")),
}
"""Keywords of other libraries, and those of ours that may mean the same, best first."""


OPTIONS_OF_JOBS: Final[set[str]] = {"errors"}
"""Keywords of ``Job``, added by ``clonos.config``, for calls of something else that get one."""


class WrongCall(JobError, TypeError):
    """A public function was called with arguments that it does not have. ``advice`` says how to write the call."""

    call: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.call}() {self.problem}. {self.advice}"


def explains_calls(target: Target) -> Target:
    """Returns a function that raises ``WrongCall`` for arguments that do not fit; of a class changes its methods."""
    if isinstance(target, type):
        for name, member in list(vars(target).items()):
            if isinstance(member, FunctionType) and (name == "__init__" or not name.startswith("_")):
                setattr(target, name, explains_calls(member))
        return target

    explain = _wrong_call
    unpacked = _unpack_keywords(target)

    def call(*arguments: Any, **keywords: Any) -> Any:
        if unpacked is not None:
            if problem := unpacked.problem(keywords):
                raise explain(target, problem, len(arguments))
            keywords = {**unpacked.defaults, **keywords}
        try:
            return target(*arguments, **keywords)
        except TypeError as error:
            at = error.__traceback__
            if at is None or at.tb_next is not None:  # raised inside
                raise
            raise explain(target, str(error), len(arguments)) from None

    # With the names of its module, in which tools for documents look up the types of its overloads.
    there = FunctionType(call.__code__, getattr(target, "__globals__", globals()), closure=call.__closure__)
    return functools.update_wrapper(there, target)  # type: ignore[return-value]


class _Unpacked(NamedTuple):
    """Keywords of a function with a ``TypedDict``: all that it takes, those that it needs, and the values of others."""

    known: frozenset[str]
    needed: tuple[str, ...]
    defaults: dict[str, Any]

    def problem(self, keywords: dict[str, Any]) -> str:
        """Returns what is wrong with keywords, in the words of Python; "" if nothing is."""
        for each in keywords:
            if each not in self.known:
                return f"got an unexpected keyword argument '{each}'"
        missing = [repr(each) for each in self.needed if each not in keywords]
        return f"missing {len(missing)} required keyword-only arguments: {' and '.join(missing)}" if missing else ""


def _unpack_keywords(function: Callable[..., Any]) -> _Unpacked | None:
    """Gives a function with ``**common: Unpack[Common]`` a signature with the fields of ``Common``.

    Returns None if Python knows its keywords. A ``TypedDict`` that is imported for type checkers alone stays as it is.
    """
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    found = UNPACKED.fullmatch(str(parameters[-1].annotation)) if parameters else None
    options = function.__globals__.get(found[1]) if found and isinstance(function, FunctionType) else None
    if options is None:
        return None
    fields = _keywords_of(options)
    parameters[-1:] = fields
    vars(function)["__signature__"] = signature.replace(parameters=parameters)
    hints = get_type_hints(options, include_extras=True)
    return _Unpacked(
        frozenset(each.name for each in parameters if each.kind is not Parameter.POSITIONAL_ONLY),
        tuple(each.name for each in fields if each.default is Parameter.empty),
        {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated},
    )


@functools.cache
def _keywords_of(options: type) -> tuple[Parameter, ...]:
    """Returns the fields of a ``TypedDict`` as parameters, with their types as they are written."""
    texts = {name: getattr(each, "__forward_arg__", each) for name, each in options.__annotations__.items()}
    return tuple(
        Parameter(name, Parameter.KEYWORD_ONLY, default=_default_of(hint), annotation=_bare_type(texts[name]))
        for name, hint in get_type_hints(options, include_extras=True).items()
    )


def _bare_type(text: Any) -> Any:
    """Returns a type as it is written, without what says whether it is needed, or its default."""
    found = WRAPPED.fullmatch(text) if isinstance(text, str) else None
    return text if found is None else found[1] or found[2]


def _default_of(hint: Any) -> Any:
    """Returns what an option is that a call leaves out: False of a bool, the first of several words, else None."""
    if get_origin(hint) is Required:
        return Parameter.empty
    if get_origin(hint) is Annotated:
        return hint.__metadata__[0]
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    return False if hint is bool else None


def _wrong_call(function: Callable[..., Any], text: str, count: int) -> WrongCall:
    """Returns the error for a call with ``count`` arguments by place that Python refused with ``text``."""
    name = name_of_call(function)
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    by_place = [each.name for each in parameters if each.kind in BY_PLACE]
    advice = f"Write {name}({_form(parameters)})."
    if found := UNKNOWN.search(text):
        return WrongCall(name, f"has no keyword {found[1]!r}", _right_keyword(found[1], parameters))
    if found := REPEATED.search(text):
        return WrongCall(name, f"gets {found[1]!r} twice, by its place and by its name", advice)
    if found := MISSING.search(text):
        return WrongCall(name, f"lacks {found[1]}", advice)
    if TOO_MANY.search(text):
        given = count - (len(inspect.signature(function).parameters) - len(parameters))
        takes = f"{len(by_place)} argument{'s' * (len(by_place) != 1)}" if by_place else "no argument"
        return WrongCall(name, f"takes {takes} without a name, and gets {given}", advice)
    return WrongCall(name, f"cannot be called like this: {text}", advice)


def name_of_call(function: Callable[..., Any]) -> str:
    """Returns what a user calls: ``files.csv``, ``Tumbling``, ``map`` of a step, ``sum_``."""
    owner, _, name = function.__qualname__.rpartition(".")
    if name == "__init__":
        return owner
    module = function.__module__.split(".")
    is_of_connector = not owner and module[:2] == ["clonos", "connectors"] and len(module) > 2
    return f"{module[2]}.{name}" if is_of_connector and module[2] in MODULES else name


MODULES: Final = frozenset(
    {"codecs", "delta", "files", "kafka", "mqtt", "nats", "postgres", "rabbitmq", "redis", "secrets", "sockets", "web"}
)
"""Public modules of connectors: their functions are called as ``files.csv``."""


def _form(parameters: Sequence[Parameter]) -> str:
    """Returns the arguments as a user writes them: ``size, every=, time=``."""
    return ", ".join(map(_argument, parameters[:SHOWN_MAX])) + ", ..." * (len(parameters) > SHOWN_MAX)


def _argument(parameter: Parameter) -> str:
    if parameter.kind in STARS:
        return STARS[parameter.kind] + parameter.name
    is_needed = parameter.kind in BY_PLACE and parameter.default is Parameter.empty
    return parameter.name if is_needed else f"{parameter.name}="


def _right_keyword(wanted: str, parameters: Sequence[Parameter]) -> str:
    names = [each.name for each in parameters if each.kind not in (*STARS, Parameter.POSITIONAL_ONLY)]
    usual = [name for name in HABITS.get(wanted.lower(), ()) if name in names]
    if not usual and wanted in OPTIONS_OF_JOBS:
        return f"It is an option of the whole job: write Job(name, {wanted}=...)."
    if usual:
        return f"Did you mean {usual[0]}?"
    return nearest(wanted, names) or (f"It takes: {', '.join(names)}." if names else "It takes no keyword.")
