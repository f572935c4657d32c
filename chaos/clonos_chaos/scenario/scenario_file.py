"""Reads scenario files: TOML, typed and checked; errors name the key and the nearest valid one.

name = "kill-each-step"
job = "described"                     # a shipped job, or "module:job"

[matrix]                              # every combination is one run; it completes the last fault
victim = ["read", "ask", "window"]

[[faults]]
kind = "kill_worker"
at = { seconds = 1.0 }
"""

from __future__ import annotations

import difflib
import itertools
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

from clonos.config import duration_ns, resolve_keywords
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos_chaos.scenario.scenario import (
    COUNTED,
    KEYS_OF,
    OF_RESOURCES,
    Expected,
    FaultKind,
    FaultSpec,
    FaultTrigger,
    Pattern,
    Scenario,
    ScenarioLimits,
)

SHIPPED_FOLDER: Final = Path(__file__).resolve().parents[1] / "scenarios"
NANOSECONDS_PER_MS: Final = 1_000_000
SEE: Final = "See docs/chaos.md for an example."
AT_LEAST_ONE: Final = ("nth", "count", "bytes_per_second", "piece_bytes", "every_bytes", "connections")
MAY_BE_NEGATIVE: Final = "step"
"""Key of a duration that may be negative: the clock is set back."""

BUNDLE: Final = "fault"
"""Key of a matrix whose values are tables of several keys of a fault, with a ``name`` for the run."""

OF_ALL_CASES: Final = ("before", "options", "job_options", "limits", "expected")
"""Keys of a matrix that are not lists of cases: faults before the others, and overrides of the file's tables."""
TOP_KEYS: Final = ("name", "about", "job", "oracle", "options", "job_options", "matrix", "faults", "limits", "expected")

Typed = TypeVar("Typed")


class ScenarioRefused(JobError):
    """A scenario file is invalid."""

    file: str
    key: str
    problem: str
    hint: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key} {self.problem}. {self.hint}"


def find_scenario(name: str) -> Path:
    """Returns the file of a path, or of the name of a shipped scenario. Raises ScenarioRefused."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = SHIPPED_FOLDER / f"{path.name.removesuffix('.toml')}.toml"
    if shipped.is_file():
        return shipped
    names = sorted(found.stem for found in SHIPPED_FOLDER.glob("*.toml"))
    raise ScenarioRefused(name, "the scenario", "is neither a file nor a shipped scenario", _hint(path.stem, names))


def read_scenarios(path: Path) -> list[Scenario]:
    """Returns the runs of a file: one, or one for each combination of its matrix.

    Raises EnvironmentFault: the file cannot be read. Raises ScenarioRefused: it is invalid.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise EnvironmentFault(f"the scenario {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ScenarioRefused(str(path), "the text", f"is not UTF-8: {error}", SEE) from None
    return parse_scenarios(text, str(path))


def parse_scenarios(text: str, file: str) -> list[Scenario]:
    """Returns the runs of the text of a file. Raises ScenarioRefused."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ScenarioRefused(file, "the text", f"is not TOML: {error}", SEE) from None
    reader = _Reader(file)
    reader.check_keys("", data, TOP_KEYS)
    matrices = data.get("matrix", {})
    found = []
    for number, matrix in enumerate(matrices if isinstance(matrices, list) else [matrices]):
        where = f"matrix[{number}]" if isinstance(matrices, list) else "matrix"
        table = reader.table(where, matrix)
        overrides: dict[str, Any] = {key: table.pop(key) for key in OF_ALL_CASES if key in table}
        found += [
            _scenario(reader, data | _with_overrides(reader, where, data, overrides), case)
            for case in _cases(reader, where, table)
        ]
    return found


def _with_overrides(
    reader: _Reader, where: str, data: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Merges the overrides of a matrix into the tables of the file."""
    found: dict[str, Any] = {}
    for key, value in overrides.items():
        if key == "before":
            found["faults"] = [
                *_list(reader, f"{where}.before", value),
                *_list(reader, "faults", data.get("faults", [{}])),
            ]
        else:
            found[key] = {**reader.table(key, data.get(key, {})), **reader.table(f"{where}.{key}", value)}
    return found


def _cases(reader: _Reader, where: str, matrix: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key, values in matrix.items():
        if not isinstance(values, list) or not values:
            raise reader.refused(
                f"{where}.{key}", f"is {values!r}", "A list of values is expected, with one run for each."
            )
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def _list(reader: _Reader, where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise reader.refused(where, "is not a list of tables", "Each fault begins with a line [[faults]].")
    return value


def _scenario(reader: _Reader, data: Mapping[str, Any], case: Mapping[str, Any]) -> Scenario:
    for key in ("name", "job"):
        if not isinstance(data.get(key), str) or not data[key]:
            raise reader.refused(key, "is missing", f'A line such as {key} = "described" is expected.')
    suffix = "".join(f" {key}={_short(value)}" for key, value in case.items())
    faults = _list(reader, "faults", data.get("faults", [{}] if case else []))
    options = reader.table("options", data.get("options", {}))
    try:
        resolve_keywords(options)
    except JobError as error:
        raise reader.refused("options", f"cannot be: {error}", "docs/options.md lists them.") from None
    return Scenario(
        name=data["name"] + suffix,
        job=data["job"],
        about=reader.text("about", data.get("about", "")),
        oracle=reader.text("oracle", data.get("oracle", "")),
        options=options,
        job_options=reader.table("job_options", data.get("job_options", {})),
        faults=tuple(
            _fault(
                reader,
                f"faults[{number}]",
                reader.table(f"faults[{number}]", fault),
                case if fault is faults[-1] else {},
            )
            for number, fault in enumerate(faults)
        ),
        limits=reader.fill(ScenarioLimits, "limits", data.get("limits", {})),
        expected=reader.fill(Expected, "expected", data.get("expected", {})),
    )


def _short(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return str(value.get("name", ",".join(f"{key}:{part}" for key, part in value.items())))


def _unbundled(reader: _Reader, case: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of a fault in a case, without display names."""
    found: dict[str, Any] = {}
    for key, value in case.items():
        table = reader.table(f"matrix.{key}", value) if key in (BUNDLE, "at") else {}
        table.pop("name", None)
        if key == BUNDLE:
            found |= table
        else:
            found[key] = table if key == "at" else value
    return found


def _fault(reader: _Reader, where: str, table: Mapping[str, Any], case: Mapping[str, Any]) -> FaultSpec:
    filled = _unbundled(reader, case)
    for key in filled:
        if key in table:
            raise reader.refused(f"{where}.{key}", "is also in [matrix]", "Leave it in one place.")
    table = {**table, **filled}
    if "kind" not in table:
        raise reader.refused(f"{where}.kind", "is missing", f"The kinds are: {', '.join(FaultKind)}.")
    trigger = table.pop("at", None)
    if trigger is None:
        raise reader.refused(
            f"{where}.at", "is missing", "It is { seconds = 1.5 }, { records = 100 } or { point = ... }."
        )
    at = reader.fill(FaultTrigger, f"{where}.at", trigger)
    count = sum((at.seconds is not None, at.records is not None, bool(at.point)))
    if count != 1:
        raise reader.refused(
            f"{where}.at", f"has {count} triggers", "Exactly one of seconds, records and point is expected."
        )
    for key in ("nth", "task"):
        if key in trigger and not at.point:
            raise reader.refused(f"{where}.at.{key}", "is given without a point", "It belongs to { point = ... }.")
    fault: FaultSpec = reader.fill(FaultSpec, where, table, {"at": at})
    if "count" in table and fault.pattern not in COUNTED:
        raise reader.refused(
            f"{where}.count", f"does not apply to {fault.pattern}", "It belongs to at_once and in_a_row."
        )
    if fault.pattern is Pattern.DRIVER and fault.kind not in OF_RESOURCES:
        raise reader.refused(
            f"{where}.pattern", f"does not apply to {fault.kind}", f"It belongs to {', '.join(OF_RESOURCES)}."
        )
    for key in table:
        if fault.kind not in KEYS_OF.get(key, (fault.kind,)):
            fitting = ", ".join(KEYS_OF[key][:6])
            raise reader.refused(f"{where}.{key}", f"does not apply to {fault.kind}", f"It belongs to {fitting}.")
    return fault


class _Reader:
    """Reader of tables into frozen dataclasses; a key is the name of a field, without ``_ms`` for a duration."""

    def __init__(self, file: str) -> None:
        self.file = file

    def refused(self, key: str, problem: str, hint: str) -> ScenarioRefused:
        return ScenarioRefused(self.file, key, problem, hint)

    def check_keys(self, where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
        names = list(known)
        for key in table:
            if key not in names:
                raise self.refused(f"{where}{key}", "is not a key of a scenario", _hint(key, names))

    def table(self, where: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refused(where, f"is {value!r}", "A table of keys and values is expected.")
        return dict(value)

    def text(self, where: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.refused(where, f"is {value!r}", "A text is expected.")
        return value

    def fill(self, owner: type[Typed], where: str, value: Any, given: Mapping[str, Any] | None = None) -> Typed:
        table = self.table(where, value)
        hints = typing.get_type_hints(owner)
        entries = {_key_of(entry.name): entry for entry in fields(owner)}  # type: ignore[arg-type]
        found = dict(given or {})
        self.check_keys(f"{where}.", table, [key for key in entries if key not in found])
        for key, raw in table.items():
            name = entries[key].name
            found[name] = self.value(f"{where}.{key}", raw, hints[name], name.endswith("_ms"))
        for entry in entries.values():
            if entry.name not in found and entry.default is MISSING:
                raise self.refused(f"{where}.{entry.name}", "is missing", "It has no default.")
        return owner(**found)

    def value(self, where: str, raw: Any, annotation: Any, is_duration: bool) -> Any:
        if is_duration:
            is_back = where.endswith(f".{MAY_BE_NEGATIVE}") and isinstance(raw, str) and raw.startswith("-")
            try:
                found_ms = duration_ns(raw[1:] if is_back else raw) // NANOSECONDS_PER_MS
                return -found_ms if is_back else found_ms
            except ValueError:
                raise self.refused(where, f"is {raw!r}", 'A duration such as "500ms" or "2s" is expected.') from None
        if isinstance(annotation, types.UnionType):
            annotation = typing.get_args(annotation)[0]
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            values = [str(member.value) for member in annotation]
            if raw not in values:
                raise self.refused(where, f"is {raw!r}", _hint(str(raw), values))
            return annotation(raw)
        is_bool = isinstance(raw, bool)
        if annotation is float and isinstance(raw, int | float) and not is_bool and 0 <= raw < float("inf"):
            return float(raw)
        if annotation is bool and is_bool:
            return raw
        least = int(where.rpartition(".")[2] in AT_LEAST_ONE)
        if annotation is int and isinstance(raw, int) and not is_bool and raw >= least:
            return raw
        if annotation is str and isinstance(raw, str):
            return raw
        expected = {float: "a number", bool: "true or false", int: "a whole number", str: "a text"}[annotation]
        raise self.refused(where, f"is {raw!r}", f"{expected.capitalize()}, not below {least}, is expected.")


def _key_of(name: str) -> str:
    return name.removesuffix("_ms")


def _hint(key: str, known: Iterable[str]) -> str:
    names = list(known)
    closest = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    return f"Did you mean {closest[0]!r}?" if closest else f"There are: {', '.join(names)}."
