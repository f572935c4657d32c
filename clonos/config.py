"""Configuration of a run: keyword < clonos.toml < environment < command line, in rising precedence, typed and checked.

A key is the option's name without its unit (``checkpoint_every``, ``inflight_memory``): the value has the unit. A
duration is "500ms", "5s", "2min", a timedelta or a number of seconds; a size is "128MiB", "4GB" or a number of bytes.
An unknown key and a value of the wrong type raise a ``JobError`` that names the key, the source and the nearest key.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import Enum, StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from clonos.core.model.bare_seconds import warn_of_seconds
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.model.options import Options
from clonos.core.model.wrong_calls import OPTIONS_OF_JOBS
from clonos.core.ports.redaction import Redact
from clonos.core.scaling.autoscaler import ScalingPolicy
from clonos.core.scaling.functions import Decide, ScalingListener
from clonos.kernels import choice as kernels

FILE_NAME: Final = "clonos.toml"
NO_FILE: Final = Path("/nonexistent", FILE_NAME)
VARIABLE_PREFIX: Final = "CLONOS_"
FOREIGN_VARIABLE_PREFIXES: Final = (
    *("CLONOS_TEST_", "CLONOS_SERVER", "CLONOS_TOKEN", "CLONOS_READ_TOKEN", "CLONOS_RUNS"),
    kernels.VARIABLE,
)
"""Prefixes of variables that are not options: the test run marks its child processes with one, three are of servers and
their clients, and one names the folder in which runs can be found."""

NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
}
BYTES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
QUANTITY_MAX: Final = (1 << 62) - 1
"""Largest value of an option, in nanoseconds (146 years), bytes or counts."""

SILENCE_MS_MAX: Final = 24 * 3_600_000
"""Longest silence that counts: what waits for it takes milliseconds in 31 bits."""

SILENCE_OF_THREADS_MS: Final = SILENCE_MS_MAX
"""Default of ``lease`` and ``orphan_after`` for slots that are threads: while a debugger holds their process, all are
silent."""

DURATION_SUFFIXES: Final = {"_ns": "ns", "_us": "us", "_ms": "ms"}
SIZE_SUFFIX: Final = "_bytes"


ScaleBounds = tuple[tuple[str, int, int], ...]
"""Bounds of widths: the name of a step, the fewest and the most tasks."""


class SlotKind(StrEnum):
    """Kind of process that hosts slots."""

    AUTO = "auto"  # Spark where pyspark is installed or a master is set, else child processes
    SPARK = "spark"  # on Spark executors
    PROCESS = "process"  # as child processes of the driver, no JVM
    THREAD = "thread"  # as threads of the driver: for tests, notebooks and debuggers


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run as a whole; the options of the runtime's core are in ``Options``."""

    parallelism: int = 1  # of every step that sets none
    slots: SlotKind = SlotKind.AUTO  # resolved settings never have it: see chosen_slots
    master: str = "local-cluster[2,4,1024]"  # of the session that the library starts
    store: str = ""  # URL or path of the checkpoint store; empty: ./.clonos/<job name>
    resume: bool = False  # resume from the last completed checkpoint of the store
    checkpoint: int | None = None  # with resume: resume from this checkpoint
    from_savepoint: str = ""  # path or URL of a savepoint from which a new job starts
    widths: tuple[str, ...] = ()  # "count=4": numbers of tasks of steps, beside those of the code
    allow_dropped_state: bool = False  # with from_savepoint: state of steps that the job does not have is dropped
    overwrite: bool = False  # delete what the store and the output folders hold
    metrics: str = ""  # file for counters, one JSON line per second
    metrics_port: int | None = None  # port of the driver for Prometheus; 0: any free one; None: no endpoint
    metrics_host: str = "127.0.0.1"  # address of that port
    telemetry: str = ""  # URL of a collector of OTLP over HTTP, or "environment"; empty: none
    lineage: str = ""  # URL or file that gets events of OpenLineage, or "environment"; empty: none
    data_host: str = ""  # address that slots advertise; empty: loopback on one host, else the host's address
    data_ports: str = ""  # "40000-40100": ports that slots may bind; empty: any
    spare_slots: int = 0  # slots in addition to one per task
    scale: ScaleBounds = ()  # steps whose width follows the load, with the fewest and the most tasks of each
    scale_dry_run: bool = False  # only show the widths that they should have
    scale_window_ms: int = 30_000  # time over which their load is measured; two such windows ask for more tasks
    scale_down_after_ms: int = 600_000  # time for which they have to need fewer tasks, before there are fewer
    scale_policy: ScalingPolicy | Decide = ScalingPolicy.LAG  # what their widths are chosen for, or what chooses them
    on_scale: ScalingListener | None = None  # function that is told of each decision
    scale_catch_up_ms: int = 120_000  # time in which they should work off lag
    scale_latency_ms: int = 0  # target of the policy ``latency``: 99 % of the records should take no longer
    domains: int = 0  # process slots: number of failure domains; 0: one per slot
    allow_injection: bool = False  # let the page and the API of the job kill its tasks
    capture_on_failure: bool = True  # keep the epoch of a task whose code ends the job
    record: tuple[str, ...] = ()  # steps and tasks whose epochs are recorded while they run; "all": every task
    record_folder: str = ""  # for these records; empty: beside the store
    record_keep: int = 20  # records of each task that stay
    record_limit_bytes: int = 64 << 20  # of the log and the input of a recorded epoch, and of its state
    record_code: bool = True  # whether records have the job's code; with ``redact`` they never have
    redact: Redact | None = None  # function that changes what is written into records
    fault_points: str = ""  # for tests: host:port of the local listener of fault points
    slot_trace: str = ""  # folder where each slot writes the events that it handles; empty: none
    py_files: tuple[str, ...] = ()  # modules and archives to ship to executors


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Resolved configuration of a run. ``origins``: for each key that was set, the source of its value.
    ``slots_reason``: why its slots are of this kind; empty when the kind was set."""

    core: Options = field(default_factory=Options)
    run: RunOptions = field(default_factory=RunOptions)
    origins: Mapping[str, str] = field(default_factory=dict)
    slots_reason: str = ""


class OptionUnknown(JobError):
    """No option has this name."""

    key: str
    origin: str
    nearest: str

    def __str__(self) -> str:
        hint = f"did you mean {self.nearest!r}?" if self.nearest else f"the options are: {', '.join(keys())}."
        return f"{self.origin} sets {self.key!r}, which is not an option: {hint}"


class OptionIllTyped(JobError):
    """A value does not have the type of its option."""

    key: str
    origin: str
    value: str
    expected: str

    def __str__(self) -> str:
        return f"{self.origin} sets the option {self.key!r} to {self.value}, but {self.expected} is expected."


SLOTS_MAX: Final = 10_000
KEY_GROUPS_MAX: Final = 1 << 15
PORT_MAX: Final = (1 << 16) - 1
HEARTBEATS_OF_LEASE_MIN: Final = 2

RANGES: Final = {
    **dict.fromkeys(
        (
            *("parallelism", "step_cost", "step_records_max", "step_records_first", "credit_window", "channel_delay"),
            *(
                "failures_per_epoch_max",
                "record_keep",
                "record_limit",
                "checkpoint_every",
                "checkpoint_timeout",
                "orphan_after",
                "slots_wait",
            ),
        ),
        (1, QUANTITY_MAX),
    ),
    **dict.fromkeys(("heartbeat", "lease"), (1, SILENCE_MS_MAX)),
    **dict.fromkeys(("spare_slots", "domains"), (0, SLOTS_MAX)),
    "max_parallelism": (1, KEY_GROUPS_MAX),
    "metrics_port": (0, PORT_MAX),
}
"""Smallest and largest value, in the unit of the field, of the options that have others than 0 and ``QUANTITY_MAX``.

Those from 1 on mean nothing at 0: a job would wait for ever, fail at its first heartbeat or do nothing but checkpoints.
"""


@dataclass(frozen=True, slots=True)
class _Option:
    """Key with the field that it fills. ``unit``: unit of the field when it is a duration or a size."""

    key: str
    field_name: str
    is_core: bool
    annotation: Any
    unit: str  # "ns", "us", "ms", "bytes" or ""

    @property
    def takes_function(self) -> bool:
        """Whether a value may be a function, which a keyword alone can give."""
        members = typing.get_args(self.annotation) if isinstance(self.annotation, types.UnionType) else ()
        return any(typing.get_origin(member) is Callable for member in members)

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value, in the unit of the field."""
        return RANGES.get(self.key, (0, QUANTITY_MAX))


def _options_of(owner: type, is_core: bool) -> Iterable[_Option]:
    hints = typing.get_type_hints(owner)
    for entry in fields(owner):
        key, unit = entry.name, ""
        for suffix, name in (*DURATION_SUFFIXES.items(), (SIZE_SUFFIX, "bytes")):
            if key.endswith(suffix):
                key, unit = key.removesuffix(suffix), name
        yield _Option(key, entry.name, is_core, hints[entry.name], unit)


_OPTIONS: Final = {o.key: o for o in (*_options_of(RunOptions, False), *_options_of(Options, True))}


def keys() -> tuple[str, ...]:
    """Returns the keys of all options, sorted."""
    return tuple(sorted(_OPTIONS))


def resolve_settings(
    keywords: Mapping[str, object],
    command_line: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> JobSettings:
    """Returns the settings of a run, merged from all four sources.

    ``keywords``: those of ``Job`` overridden by those of ``run``. ``environment`` and ``file`` default to those of the
    process; a missing file counts as empty.

    Raises: OptionUnknown and OptionIllTyped for an option that is wrong; JobError for two options that exclude each
    other, or when the file is no TOML; EnvironmentFault when the file cannot be read.
    """
    file = Path(FILE_NAME) if file is None else file
    environment = os.environ if environment is None else environment
    layers: list[tuple[str, Mapping[str, object]]] = [
        ("the keyword", keywords),
        (f"the file {file}", _read_file(file)),
        ("the environment", _read_environment(environment)),
        ("the command line", command_line or {}),
    ]
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        for key, value in layer.items():
            option = _OPTIONS.get(key)
            if option is None:
                raise OptionUnknown(_displayed_key(key, origin), origin, _nearest(key, origin))
            values[key] = _parse(option, value, origin)
            origins[key] = origin
    core = {_OPTIONS[key].field_name: value for key, value in values.items() if _OPTIONS[key].is_core}
    run = {_OPTIONS[key].field_name: value for key, value in values.items() if not _OPTIONS[key].is_core}
    if core.get("replicas") is not None and core.get("sharing_depth") is not None:
        raise JobError(
            f"{origins['replicas']} sets replicas and {origins['sharing_depth']} sets sharing_depth: both limit the"
            " sharing of causal logs. Set only one of them."
        )
    reason = ""
    if run.get("slots", SlotKind.AUTO) is SlotKind.AUTO:
        run["slots"], reason = chosen_slots("master" in run)
    if run["slots"] is SlotKind.THREAD:
        core = {"lease_ms": SILENCE_OF_THREADS_MS, "orphan_after_ms": SILENCE_OF_THREADS_MS} | core
    options = Options(**core)  # type: ignore[arg-type]
    if options.lease_ms < HEARTBEATS_OF_LEASE_MIN * options.heartbeat_ms:
        raise JobError(
            f"lease is {options.lease_ms} ms and heartbeat is {options.heartbeat_ms} ms: a process speaks once a"
            f" heartbeat, and would count as dead. Set a lease of {HEARTBEATS_OF_LEASE_MIN} heartbeats or more."
        )
    return JobSettings(options, RunOptions(**run), origins, reason)  # type: ignore[arg-type]


def chosen_slots(has_master: bool) -> tuple[SlotKind, str]:
    """Returns the kind of slots of a run that sets none, and the reason. ``has_master``: a Spark master is set."""
    if has_master:
        return SlotKind.SPARK, "a master is set"
    if find_spec("pyspark") is not None:
        return SlotKind.SPARK, "PySpark is installed"
    return SlotKind.PROCESS, "PySpark is not installed"


def resolve_keywords(keywords: Mapping[str, object]) -> JobSettings:
    """Returns the settings of these keywords alone, without the file, the environment and the command line."""
    return resolve_settings(keywords, environment={}, file=NO_FILE)


def describe(settings: JobSettings) -> dict[str, object]:
    """Returns the resolved value of every key, in the unit of the option's field, and the name of each function."""
    values = {
        key: getattr(settings.core if option.is_core else settings.run, option.field_name)
        for key, option in sorted(_OPTIONS.items())
    }
    return {key: name_of_function(value) if callable(value) else value for key, value in values.items()}


def name_of_function(function: Callable[..., Any]) -> str:
    """Returns the name of a function, or that of the class of another object that can be called."""
    found = getattr(function, "__name__", None)
    return found if isinstance(found, str) else type(function).__name__


def duration_ns(value: object) -> int:
    """Returns the nanoseconds of a duration: "5s", "500ms", a timedelta or a number of seconds.

    Raises: ValueError when ``value`` is no duration of at most 146 years.
    """
    if isinstance(value, timedelta):
        return round(value / timedelta(microseconds=1)) * 1_000
    return _quantity(value, NANOSECONDS, "s")


def size_bytes(value: object) -> int:
    """Returns the bytes of a size: "128MiB", "4GB" or a number of bytes.

    Raises: ValueError when ``value`` is no size.
    """
    return _quantity(value, BYTES, "B")


def _quantity(value: object, units: Mapping[str, int], default_unit: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(value)
    number, unit = value, units[default_unit]
    if isinstance(number, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", number)
        if match is None or (match[2] or default_unit) not in units:
            raise ValueError(value)
        number = float(match[1]) if "." in match[1] else int(match[1])
        unit = units[match[2] or default_unit]
    if not 0 <= abs(number) * unit <= QUANTITY_MAX:  # false for infinity and NaN too
        raise ValueError(value)
    return round(number * unit)


def _read_file(file: Path) -> Mapping[str, object]:
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentFault(f"the file {file} cannot be read: {error}. Correct it or remove it.") from None
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise JobError(
            f'the file {file} is not TOML: {error}. It should have lines like: checkpoint_every = "5s"'
        ) from None


def _read_environment(environment: Mapping[str, str]) -> dict[str, object]:
    if environment.get(kernels.VARIABLE, kernels.FORCED) != kernels.FORCED:
        found = environment[kernels.VARIABLE]
        raise JobError(
            f"{kernels.VARIABLE} is {found!r}, and {kernels.FORCED!r} is the only value: correct or unset it."
        )
    return {
        name.removeprefix(VARIABLE_PREFIX).lower(): value
        for name, value in sorted(environment.items())
        if name.startswith(VARIABLE_PREFIX) and not name.startswith(FOREIGN_VARIABLE_PREFIXES)
    }


def _displayed_key(key: str, origin: str) -> str:
    return VARIABLE_PREFIX + key.upper() if origin == "the environment" else key


def _nearest(key: str, origin: str) -> str:
    closest = difflib.get_close_matches(key, _OPTIONS, n=1, cutoff=0.5)
    return _displayed_key(closest[0], origin) if closest else ""


def _parse(option: _Option, value: object, origin: str) -> object:
    try:
        parsed = _parse_as(option, value)
    except (ValueError, TypeError):
        raise OptionIllTyped(_displayed_key(option.key, origin), origin, repr(value), _expected(option)) from None
    if isinstance(parsed, int) and not isinstance(parsed, bool):
        least, most = option.range
        limit = ""
        if parsed < least:
            limit = f", not below {least}," if least == 0 or not option.unit else ", above 0,"
        elif parsed > most:
            limit = f", not above {_limit_text(most)},"
        if limit:
            raise OptionIllTyped(_displayed_key(option.key, origin), origin, repr(value), f"{_expected(option)}{limit}")
    return parsed


def _limit_text(most: int) -> str:
    return {SILENCE_MS_MAX: "24h", QUANTITY_MAX: "2**62"}.get(most, str(most))


def _parse_as(option: _Option, value: object) -> object:
    if option.unit == "bytes":
        return size_bytes(value)
    if option.unit:
        if isinstance(value, (int, float)):
            warn_of_seconds(value)
        return _in_whole_units(duration_ns(value), NANOSECONDS[option.unit])
    annotation, is_optional = _without_none(option.annotation)
    if option.takes_function and callable(value) and not isinstance(value, Enum | type):
        return value
    if is_optional and (value is None or (isinstance(value, str) and value.lower() in ("none", "full"))):
        return None
    if annotation is bool:
        return _parse_bool(value)
    if annotation is int:
        return _parse_int(value)
    if annotation is str:
        return _parse_str(value)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return annotation(value)
    if option.takes_function:
        raise ValueError(value)
    return _parse_bounds(value) if annotation == ScaleBounds else _parse_names(value)


def _in_whole_units(quantity_ns: int, unit_ns: int) -> int:
    if quantity_ns % unit_ns:
        raise ValueError(quantity_ns)
    return quantity_ns // unit_ns


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if isinstance(annotation, types.UnionType):
        members = typing.get_args(annotation)
        return members[0], types.NoneType in members
    return annotation, False


def _parse_bool(value: object) -> bool:
    known = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise ValueError(value)


def _parse_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    return int(value)


def _parse_str(value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise ValueError(value)
    return os.fspath(value)


def _parse_names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    if isinstance(value, list | tuple):
        return tuple(_parse_str(name) for name in value)
    raise ValueError(value)


def _parse_bounds(value: object) -> ScaleBounds:
    """Returns the bounds of steps, given as ``{"count": (1, 8)}`` or as the text ``count=1:8, sum=2:4``."""
    if isinstance(value, str):
        pairs = [name.partition("=") for name in _parse_names(value)]
        value = {step.strip(): bounds.split(":") for step, _, bounds in pairs}
    if not isinstance(value, Mapping):
        raise ValueError(value)
    found = []
    for step, bounds in value.items():
        low, high = map(_parse_int, bounds)
        if not 1 <= low <= high <= KEY_GROUPS_MAX:
            raise ValueError(value)
        found.append((_parse_str(step), low, high))
    return tuple(found)


def _expected(option: _Option) -> str:
    if option.unit == "bytes":
        return 'a size such as "128MiB" or a number of bytes'
    if option.unit:
        return f'a duration in whole {option.unit} such as "5s", "500ms" or a number of seconds'
    annotation, is_optional = _without_none(option.annotation)
    or_none = ' or "none"' if is_optional else ""
    function = "a function, as a keyword of the job," if option.takes_function else ""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join([*(repr(member.value) for member in annotation), *filter(None, [function])]) + or_none
    if function:
        return function + or_none
    named = {
        bool: "true or false",
        int: "a whole number",
        str: "a string",
        ScaleBounds: 'the fewest and the most tasks of each step, such as {"count": (1, 8)} or "count=1:8",',
    }
    return named.get(annotation, "a list of strings") + or_none


OPTIONS_OF_JOBS.update(keys())
