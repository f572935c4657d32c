"""Names that a replay would not repeat, and what to write instead of each (``docs/determinism.md``)."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple


class NameUse(Enum):
    """Use of a name that a rule is about."""

    LOADED = auto()  # called, or passed on
    CALLED = auto()
    CALLED_WITHOUT_ARGUMENTS = auto()


class _Rule(NamedTuple):
    names: re.Pattern[str]
    advice: str
    use: NameUse


def _rule(names: str, advice: str, use: NameUse = NameUse.LOADED) -> _Rule:
    return _Rule(re.compile(names), advice, use)


KEEP_IN_STATE: Final = "no checkpoint has it: keep it in declared state, such as ValueState or ListState"
USE_SORTED: Final = "iterate over sorted(...)"
JOIN_IT: Final = "a step has its records only: use join, lookup, connect or broadcast for those of another stream"
MAKE_A_LIST: Final = "each process has a copy that begins anew: make a list of it where the job is built"
OPEN_IN_SLOT: Final = "each process has a copy: open it in open() of a process class, or read it where the job is built"
CALL_IN_STEP: Final = "all records have the same, and a resumed job another: call clock.now() in the function"

_RANDOM: Final = "use random of clonos"
_NUMPY_RANDOM: Final = "use random.numpy() of clonos"
_READ_BEFORE: Final = "read it where the job is built, or in a @service function"
_CALL_RECORDED: Final = "use http of clonos, or put @service above the function that makes the call"
_CLIENTS: Final = "requests|httpx|aiohttp|urllib3|boto3|botocore|redis|psycopg|psycopg2|pymongo|kafka|confluent_kafka"

RULES: Final = (
    _rule(r"time\.((?:time|monotonic)(?:_ns)?)", r"use clock.\1() of clonos"),
    _rule(r"time\.perf_counter((?:_ns)?)", r"use clock.monotonic\1(exact=True) of clonos"),
    _rule(r"datetime\.datetime\.(?:now|utcnow|today)", "use clock.now() of clonos"),
    _rule(r"datetime\.date\.today", "use clock.now().date() of clonos"),
    _rule(r"random\.[a-z]\w*|random\.Random\.\w+|random\.SystemRandom\.\w+", _RANDOM),
    _rule(r"random\.Random|random\.SystemRandom", _RANDOM, NameUse.CALLED_WITHOUT_ARGUMENTS),
    _rule(r"numpy\.random\.mtrand\.RandomState\.\w+|numpy\.random\._generator\.Generator\.\w+", _NUMPY_RANDOM),
    _rule(r"numpy\.random(?:\._generator)?\.default_rng", _NUMPY_RANDOM, NameUse.CALLED_WITHOUT_ARGUMENTS),
    _rule(r"uuid\.uuid[14678]", "use uuid4 of clonos"),
    _rule(r"(?:os|posix|nt)\.urandom|secrets\.\w+", _RANDOM),
    _rule(rf"(?:{_CLIENTS}|http\.client|urllib\.request)\..+", _CALL_RECORDED, NameUse.CALLED),
    _rule(r"_?socket\.(?:socket|create_connection|gethostbyname|getaddrinfo)(?:\..+)?", _CALL_RECORDED, NameUse.CALLED),
    _rule(r"builtins\.open|_?io\.open", _READ_BEFORE),
    _rule(r"os\.(?:getenv|_Environ)", _READ_BEFORE),
    _rule(r"subprocess\.\w+|(?:os|posix)\.(?:system|popen)", "call it in a @service function", NameUse.CALLED),
    _rule(
        r"threading\.Thread|concurrent\.futures\..+|asyncio\.\w+(?:\..+)?|multiprocessing\..+",
        "use plain calls, or map_async",
        NameUse.CALLED,
    ),
    _rule(r"clonos\.job\.description\.Job", JOIN_IT, NameUse.CALLED),
    _rule(r"builtins\.id", "use the value itself: an id differs between processes", NameUse.CALLED),
)

MUTATORS: Final = frozenset(
    (
        *("append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault", "subtract"),
        *("pop", "popleft", "popitem", "remove", "discard", "clear"),
    )
)
"""Methods that change a container."""

SURE_MUTATORS: Final = frozenset({"append", "appendleft", "extend", "setdefault"})
"""Methods that show by their names that the object is a container."""


def advice_for(name: str, *, is_called: bool, has_arguments: bool) -> str:
    """Returns what to write instead of a name that is loaded or called; an empty text if a replay repeats it."""
    for rule in RULES:
        if found := rule.names.fullmatch(name):
            is_meant = rule.use is NameUse.LOADED or (is_called and (rule.use is NameUse.CALLED or not has_arguments))
            return found.expand(rule.advice) if is_meant else ""
    return ""
