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
    CALLED_WITHOUT_PLACE = auto()  # without positional arguments
    CALLED_WITHOUT_SECOND = auto()  # with one argument or none


class Replacement(NamedTuple):
    """Advice on what to write instead of something, and the code of the rule that gives it.

    ``is_intercepted``: whether a step with ``intercept=True`` records it. ``is_intercepted_inside``: whether that is so
    in a function whose calls are logged one by one.
    """

    code: str
    advice: str
    is_intercepted: bool = False
    is_intercepted_inside: bool = False


class _Rule(NamedTuple):
    code: str
    names: re.Pattern[str]
    advice: str
    use: NameUse


def _rule(code: str, names: str, advice: str, use: NameUse = NameUse.LOADED) -> _Rule:
    return _Rule(code, re.compile(names), advice, use)


TIME_AT_LOAD: Final = "CLN103"
PROCESS_COPY: Final = "CLN305"
GLOBALS: Final = "CLN501"
ENCLOSING: Final = "CLN502"
ATTRIBUTES: Final = "CLN503"
CONTAINERS_CHANGED: Final = "CLN504"
ITERATORS: Final = "CLN505"
SET_ORDER: Final = "CLN601"
THREADS: Final = "CLN701"
UNNAMED: Final = "CLN801"
UNDECLARED_EFFECT: Final = "CLN802"
FLOAT_KEYS: Final = "CLN803"
UNKNOWN_STATE: Final = "CLN804"
FRAMES: Final = "CLN805"
STREAMS: Final = "CLN806"
UNREGISTERED: Final = "CLN807"
SYNTAX: Final = "CLN901"

THEMES: Final = {
    "CLN101": "a clock is read",
    "CLN102": "a duration is measured",
    TIME_AT_LOAD: "a time was read while the file was loaded",
    "CLN201": "random numbers",
    "CLN202": "random numbers of numpy or of a frame",
    "CLN203": "identities that are drawn at random",
    "CLN204": "random bytes of the operating system",
    "CLN301": "a file or a folder is read",
    "CLN302": "an environment variable is read",
    "CLN303": "what differs between processes and machines",
    "CLN304": "another program or the keyboard",
    PROCESS_COPY: "a file that is opened before the job starts",
    "CLN306": "a file or a folder is changed",
    "CLN401": "a request over the network",
    "CLN402": "a connection of a lower level",
    "CLN403": "a database",
    GLOBALS: "a global is changed",
    ENCLOSING: "a variable of an enclosing function is changed",
    ATTRIBUTES: "an attribute of an object that outlives the call is changed",
    CONTAINERS_CHANGED: "a container that outlives the call is changed",
    ITERATORS: "an iterator that outlives the call is advanced",
    SET_ORDER: "the order of a set",
    "CLN602": "a hash or an id",
    THREADS: "threads, pools and event loops",
    UNNAMED: "a step with state has no name of its own",
    UNDECLARED_EFFECT: "a call with an effect in a step without effects=True",
    FLOAT_KEYS: "a key that is a float",
    UNKNOWN_STATE: "a step of the store that the job does not have",
    FRAMES: "a batch is handled as if it were all records",
    STREAMS: "a job or another stream is used in a function",
    UNREGISTERED: "a record of a class that is not registered",
    SYNTAX: "a file that is not Python",
}
"""What each code is about: time (1xx), randomness (2xx), files and the environment (3xx), networks (4xx), memory
outside of state (5xx), order (6xx), threads (7xx), the graph (8xx), and the file itself (9xx)."""

_READ_BEFORE: Final = "read it where the job is built, or in a @service function"

KEEP_IN_STATE: Final = "no checkpoint has it: keep it in declared state, such as ValueState or ListState"
USE_SORTED: Final = Replacement(SET_ORDER, "iterate over sorted(...)")
JOIN_IT: Final = Replacement(
    STREAMS, "a step has its records only: use join, lookup, connect or broadcast for those of another stream"
)
MAKE_A_LIST: Final = Replacement(
    ITERATORS, "each process has a copy that begins anew: make a list of it where the job is built"
)
OPEN_IN_SLOT: Final = Replacement(
    PROCESS_COPY, "each process has a copy: open it in open() of a process class, or read it where the job is built"
)
DECLARE_EFFECT: Final = Replacement(
    UNDECLARED_EFFECT, "the job would fail at it: give the step effects=True, and read what a kill does to such a call"
)
CALL_IN_STEP: Final = Replacement(
    TIME_AT_LOAD, "all records have the same, and a resumed job another: call clock.now() in the function"
)

_ZONE: Final = "it has the time zone of the machine: give tz=timezone.utc, or another zone"
_CLOCK: Final = "use clock.now() of clonos"
_RANDOM: Final = "use random of clonos"
_NUMPY_RANDOM: Final = "use random.numpy() of clonos"
_CALL_RECORDED: Final = "use http of clonos, or put @service above the function that makes the call"
_IN_SERVICE: Final = "put @service above the function that makes the call"
_WRITE_BY_SINK: Final = "send rows to a sink, or give the step effects=True and do it in a @service function"
_PLAIN_CALLS: Final = "use plain calls, or map_async"
_SAME_EVERYWHERE: Final = "it differs between processes and machines: read it where the job is built"

_CLIENTS: Final = (
    "requests|httpx2?|aiohttp|urllib3|boto3|botocore|kafka|confluent_kafka|pika|nats|paho|smtplib|ftplib|imaplib|poplib"
    "|xmlrpc|paramiko|grpc|websocket|websockets|slack_sdk|stripe|openai|anthropic|google"
)
_MADE_ONLY: Final = r"(?:requests|urllib\.request|httpx)\.(?:\w+\.)*(?:\w*Request|quote|unquote|\w+Error|Timeout|URL)\b"
"""What only makes a request, and sends none."""

_DATABASES: Final = (
    "_?sqlite3|redis|psycopg|psycopg2|psycopg_pool|pymongo|motor|sqlalchemy|mysql|pymysql|MySQLdb|asyncpg|aiosqlite"
    "|cassandra|elasticsearch|opensearchpy|pyodbc|oracledb|snowflake|clickhouse_connect|clickhouse_driver|memcache"
)
_PATH: Final = r"pathlib(?:\._local)?\.\w*Path\."
_READS_PATH: Final = (
    "read_text|read_bytes|open|exists|is_file|is_dir|is_symlink|stat|lstat|iterdir|glob|rglob|walk|samefile|owner|group"
)
_WRITES_PATH: Final = "write_text|write_bytes|touch|mkdir|unlink|rename|replace|rmdir|chmod|symlink_to|hardlink_to"
_READS_OS: Final = "listdir|scandir|walk|fwalk|stat|lstat|access|read|open|readlink"
_WRITES_OS: Final = "remove|unlink|rename|renames|replace|mkdir|makedirs|rmdir|removedirs|chmod|link|symlink|truncate"
_READS_OS_PATH: Final = "exists|lexists|isfile|isdir|islink|getmtime|getatime|getctime|getsize|samefile"
_READERS: Final = (
    r"pandas(?:\.[\w.]+)?\.read_\w+|polars(?:\.[\w.]+)?\.(?:read|scan)_\w+|pyarrow\.\w+\.(?:read_\w+|open_\w+)"
    r"|pyarrow\._?dataset\.dataset"
    r"|numpy\.(?:load|loadtxt|genfromtxt|fromfile|memmap)|numpy\.lib\.\w+\.(?:load|loadtxt|genfromtxt)"
    r"|dotenv(?:\.main)?\.\w+|linecache\.\w+|configparser\.\w*ConfigParser\.read"
)

RULES: Final = (
    _rule("CLN101", r"time\.((?:time|monotonic)(?:_ns)?)", r"use clock.\1() of clonos"),
    _rule("CLN101", r"time\.clock_gettime(?:_ns)?", "use clock.time() of clonos"),
    _rule("CLN101", r"time\.(?:localtime|gmtime|ctime|asctime)", _CLOCK, NameUse.CALLED_WITHOUT_ARGUMENTS),
    _rule("CLN303", r"time\.(?:localtime|mktime|ctime)", _ZONE, NameUse.CALLED),
    _rule("CLN303", r"datetime\.datetime\.fromtimestamp", _ZONE, NameUse.CALLED_WITHOUT_SECOND),
    _rule("CLN101", r"time\.strftime", _CLOCK, NameUse.CALLED_WITHOUT_SECOND),
    _rule("CLN101", r"datetime\.datetime\.(?:now|utcnow|today)", _CLOCK),
    _rule("CLN101", r"datetime\.date\.today", "use clock.now().date() of clonos"),
    _rule("CLN101", r"(?:pandas|pendulum|arrow|whenever|dateutil|django)\b[\w.]*\.(?:now|utcnow|today)", _CLOCK),
    _rule("CLN101", r"email\.utils\.(?:localtime|formatdate)", _CLOCK, NameUse.CALLED_WITHOUT_PLACE),
    _rule("CLN102", r"time\.perf_counter((?:_ns)?)", r"use clock.monotonic\1(exact=True) of clonos"),
    _rule("CLN102", r"time\.(?:process_time|thread_time)(?:_ns)?", "leave it out: a successor needs another time"),
    _rule("CLN201", r"random\.[a-z]\w*|random\.Random\.\w+|random\.SystemRandom\.\w+", _RANDOM),
    _rule("CLN201", r"random\.Random|random\.SystemRandom", _RANDOM, NameUse.CALLED_WITHOUT_ARGUMENTS),
    _rule(
        "CLN201", r"(?:torch|tensorflow|jax|faker)\b[\w.]*\.rand\w*|faker\.[\w.]+|torch\.(?:normal|bernoulli)", _RANDOM
    ),
    _rule(
        "CLN202", r"numpy\.random\.mtrand\.RandomState\.\w+|numpy\.random\._generator\.Generator\.\w+", _NUMPY_RANDOM
    ),
    _rule(
        "CLN202",
        r"numpy\.random(?:\._generator|\.mtrand)?\.(?:default_rng|RandomState|SeedSequence)",
        _NUMPY_RANDOM,
        NameUse.CALLED_WITHOUT_ARGUMENTS,
    ),
    _rule("CLN203", r"uuid\.uuid[14678]", "use uuid4 of clonos"),
    _rule("CLN203", r"uuid\.getnode", _SAME_EVERYWHERE),
    _rule("CLN203", r"(?:ulid|nanoid|shortuuid|ksuid|bson\.objectid|bson)\.\w+", "use uuid4 of clonos", NameUse.CALLED),
    _rule("CLN204", r"(?:os|posix|nt)\.(?:urandom|getrandom)|secrets\.(?!compare_digest)\w+", _RANDOM),
    _rule("CLN301", r"builtins\.open|_?io\.open|(?:codecs|gzip|bz2|lzma|tarfile|zipfile)\.open", _READ_BEFORE),
    _rule("CLN301", rf"(?:os|posix|nt)\.(?:{_READS_OS})|glob\.i?glob|shutil\.disk_usage", _READ_BEFORE, NameUse.CALLED),
    _rule("CLN301", rf"(?:genericpath|posixpath|ntpath|nt|posix)\.(?:{_READS_OS_PATH})", _READ_BEFORE),
    _rule("CLN301", rf"{_PATH}(?:{_READS_PATH})", _READ_BEFORE),
    _rule("CLN301", _READERS, _READ_BEFORE),
    _rule("CLN302", r"os\.(?:getenvb?|_Environ)(?:\..+)?", _READ_BEFORE),
    _rule(
        "CLN303",
        r"(?:os|posix|nt)\.(?:getpid|getppid|getcwd|uname|getlogin|getuid|times|getloadavg|cpu_count)|platform\.\w+"
        r"|_?socket\.(?:gethostname|getfqdn)|getpass\.getuser|psutil\..+|resource\.getrusage|tempfile\.\w+"
        r"|_?thread(?:ing)?\.(?:get_ident|get_native_id|current_thread|active_count)|locale\.getlocale"
        r"|multiprocessing\.process\.current_process|sys\.(?:getrefcount|_getframe)|shutil\.which|gc\.\w+"
        rf"|{_PATH}(?:cwd|home|resolve|absolute|expanduser)",
        _SAME_EVERYWHERE,
        NameUse.CALLED,
    ),
    _rule(
        "CLN304", r"subprocess\.\w+|(?:os|posix)\.(?:system|popen|spawn\w+|exec\w+|fork)", _IN_SERVICE, NameUse.CALLED
    ),
    _rule("CLN304", r"builtins\.input", _READ_BEFORE, NameUse.CALLED),
    _rule("CLN306", rf"{_PATH}(?:{_WRITES_PATH})|shutil\.(?:copy\w*|move|rmtree|make_archive)", _WRITE_BY_SINK),
    _rule("CLN306", rf"(?:os|posix|nt)\.(?:{_WRITES_OS})", _WRITE_BY_SINK, NameUse.CALLED),
    _rule(
        "CLN401", rf"(?!{_MADE_ONLY})(?:{_CLIENTS}|http\.client|urllib\.request)\..+", _CALL_RECORDED, NameUse.CALLED
    ),
    _rule(
        "CLN402",
        r"_?socket\.(?:socket|create_connection|gethostbyname|getaddrinfo|gethostbyaddr)(?:\..+)?|ssl\.\w+",
        _CALL_RECORDED,
        NameUse.CALLED,
    ),
    _rule("CLN403", rf"(?:{_DATABASES})(?:\..+|$)", _IN_SERVICE, NameUse.CALLED),
    _rule(
        THREADS,
        r"threading\.(?:Thread|Timer)|_thread\.start_new_thread|concurrent\.futures\..+|asyncio\.\w+(?:\..+)?"
        r"|multiprocessing\..+|joblib\..+|signal\.\w+|anyio\..+|trio\..+",
        _PLAIN_CALLS,
        NameUse.CALLED,
    ),
    _rule(
        ATTRIBUTES,
        r"decimal\.setcontext|locale\.setlocale|numpy\.seterr|pandas\.[\w.]*set_option|sys\.set\w+|_decimal\.setcontext"
        r"|(?:os|posix|nt)\.(?:putenv|unsetenv|chdir|umask)|socket\.setdefaulttimeout",
        "it is a setting of the process, which outlives the call: make it in open() of a process class",
        NameUse.CALLED,
    ),
    _rule(STREAMS, r"clonos\.job\.description\.Job", JOIN_IT.advice, NameUse.CALLED),
    _rule("CLN602", r"builtins\.id", "use the value itself: an id differs between processes", NameUse.CALLED),
    _rule(
        "CLN602",
        r"builtins\.hash",
        "use zlib.crc32 or hashlib: the hash of a text differs between runs",
        NameUse.CALLED,
    ),
)

INTERCEPTED: Final = re.compile(
    r"time\.(?:(?:time|monotonic|perf_counter)(?:_ns)?|localtime|gmtime|ctime|asctime|strftime)"
    r"|datetime\.datetime\.(?:now|utcnow|today)|datetime\.date\.today|pandas\b[\w.]*\.(?:now|utcnow|today)"
    r"|random\.[a-z]\w*|random\.Random|random\.SystemRandom(?:\.\w+)?|numpy\.random(?:\._generator)?\.default_rng"
    r"|uuid\.(?:uuid[14]|getnode)|(?:os|posix)\.(?:urandom|getrandom)|secrets\.\w+"
    r"|requests\..+|urllib3\..+|(?:httpx2?|openai|anthropic)\.(?!Async|.*\.Async).+|urllib\.request\..+"
)
"""What a step with ``intercept=True`` records (``clonos_services.interception``). Clients of models send by httpx."""

INTERCEPTED_INSIDE: Final = re.compile(r"(?:httpx2?|aiohttp|openai|anthropic)\..+")
"""What it records in addition where calls are logged one by one: clients that are awaited."""

MUTATORS: Final = frozenset(
    (
        *("append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault", "subtract"),
        *("pop", "popleft", "popitem", "remove", "discard", "clear", "sort", "reverse", "rotate", "move_to_end"),
    )
)
"""Methods that change a container."""

SURE_MUTATORS: Final = frozenset({"append", "appendleft", "extend", "setdefault"})
"""Methods that show by their names that the object is a container."""


def replacement_of(name: str, *, is_called: bool, arguments: int, places: int = 0) -> Replacement | None:
    """Returns what to write instead of a name that is loaded or called; None if a replay repeats it.

    ``arguments``: how many a call has, ``places`` of them without a name.
    """
    for rule in RULES:
        found = rule.names.fullmatch(name)
        if found is not None and _is_meant(rule.use, is_called, arguments, places):
            is_intercepted = rule.code != "CLN303" and INTERCEPTED.fullmatch(name) is not None
            is_inside = is_intercepted or INTERCEPTED_INSIDE.fullmatch(name) is not None
            return Replacement(rule.code, found.expand(rule.advice), is_intercepted, is_inside)
    return None


def _is_meant(use: NameUse, is_called: bool, arguments: int, places: int) -> bool:
    match use:
        case NameUse.LOADED:
            return True
        case NameUse.CALLED:
            return is_called
        case NameUse.CALLED_WITHOUT_ARGUMENTS:
            return is_called and not arguments
        case NameUse.CALLED_WITHOUT_PLACE:
            return is_called and not places
        case NameUse.CALLED_WITHOUT_SECOND:
            return is_called and arguments < 2  # the second one is the time
