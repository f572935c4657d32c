"""Modules that are imported before a slot is forked, and the fork server that starts ahead of its job."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from clonos import Job, Stream, collect, random, values
from clonos.config import RunOptions, SlotKind
from clonos.core.model.options import Options
from clonos.io.process.fork_server import import_for_job
from clonos.io.process.fork_server_process import (
    COLUMN_MODULES,
    WARM_MODULES,
    ForkServerProcess,
    fork_server_ahead,
    hash_seed_ahead,
    take_or_start,
)
from clonos.io.process.pickling import packed
from clonos.job.description import graph_of
from clonos_standby.launch_spec import version_of
from tests.unit.values.samples import printed_by

pytestmark = pytest.mark.slow

ON_PROCESSES = RunOptions(slots=SlotKind.PROCESS)
NO_MODULES = ("os",)


def test_the_fork_server_has_preloaded_every_library_module_that_a_job_imports(tmp_path: Path) -> None:
    job = Job("words")
    words = job.source(values(["a b", "c"])).flat_map(str.split).key_by(lambda word: word).count()
    words.map_async(lambda count: random.random(), name="tell").sink(collect())
    image, modules = packed(graph_of(job).compile(Options(), parallelism=1))
    (tmp_path / "image").write_bytes(image)
    program = (
        "import pickle, sys; from clonos.io.process.fork_server import import_for_job, warm_up;"
        f"warm_up({WARM_MODULES!r}); import_for_job({modules!r}); known = set(sys.modules);"
        f"pickle.load(open({str(tmp_path / 'image')!r}, 'rb'));"
        "print([len(known & {'clonos.operators.steps.call_attempts', 'clonos.operators.steps.async_map'}),"
        " *sorted(set(sys.modules) - known)])"
    )
    assert printed_by(program) == "[2]"


def test_the_fork_server_preloads_what_an_installed_module_of_the_job_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json.decoder, "Stream", Stream, raising=False)
    assert Stream.__module__ in packed(json.JSONDecoder)[1]


def test_the_fork_server_imports_no_module_of_drivers() -> None:
    program = (
        "import sys; from clonos.io.process.fork_server import warm_up;"
        f"warm_up({WARM_MODULES!r});"
        "print([name for name in ('clonos_standby.driver.driver', 'clonos.core.coordinator', 'rich', 'numpy',"
        " 'pyarrow') if name in sys.modules])"
    )
    assert printed_by(program) == "[]"


def test_the_fork_server_of_a_job_with_columns_has_preloaded_what_its_slots_import(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    program = (
        "import sys; from clonos.io.process.fork_server import import_for_job, warm_up;"
        f"warm_up({WARM_MODULES!r}); import_for_job({COLUMN_MODULES!r}); from clonos import col, files, lit;"
        "known = set(sys.modules); import pyarrow;"
        f"pyarrow.parquet.write_table(pyarrow.table({{'k': [1], 't': [1]}}), {path!r});"
        f"source = files.parquet({path!r}, columns=['k']); reader = source.reader();"
        "reader.open(source.splits(1)[0], None); batch = reader.read(10);"
        "from clonos.core.values import decode_columns, encode_columns, get_ready_for_columns;"
        "get_ready_for_columns(); decode_columns(encode_columns(batch));"
        "from clonos.expressions.program import Program; from clonos.expressions.stages import Stage;"
        "Program([Stage('f', 'filter', (('c', col('k') == lit(1)),))], batch.schema);"
        "from clonos.operators.columnar import column_step; from clonos.operators.kinds import column_panes;"
        "print(sorted(set(sys.modules) - known))"
    )
    assert printed_by(program) == "[]"


def test_modules_of_a_job_that_cannot_be_imported_are_left_to_its_slots(capsys: pytest.CaptureFixture[str]) -> None:
    import_for_job(("clonos.no_such_module",))
    assert "cannot import clonos.no_such_module: ModuleNotFoundError" in capsys.readouterr().err


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ForkServerProcess]]:
    """All fork servers that were started."""
    found: list[ForkServerProcess] = []
    start = ForkServerProcess.start

    def start_and_keep(hash_seed: str, warm_modules: tuple[str, ...], output: Path | None = None) -> ForkServerProcess:
        found.append(start(hash_seed, warm_modules, output))
        return found[-1]

    monkeypatch.setattr(ForkServerProcess, "start", start_and_keep)
    yield found
    for each in found:
        if each.process.returncode is None:
            each.discard()


def test_a_job_takes_the_fork_server_that_was_started_ahead_and_only_the_first_job(
    started: list[ForkServerProcess],
) -> None:
    with fork_server_ahead(ON_PROCESSES, NO_MODULES):
        seed = hash_seed_ahead()
        assert seed is not None
        with fork_server_ahead(ON_PROCESSES, NO_MODULES):  # the start of the job, within the command line's
            assert take_or_start(seed, NO_MODULES, None) is started[0]
        assert hash_seed_ahead() is None
        assert take_or_start(seed, NO_MODULES, None) is started[1]
    assert [each.process.returncode for each in started] == [None, None]


@pytest.mark.parametrize("what", ["a variable", "the import path", "the working folder", "the hash seed"])
def test_a_fork_server_whose_slots_would_differ_is_ended_and_replaced(
    started: list[ForkServerProcess], what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with fork_server_ahead(ON_PROCESSES, NO_MODULES):
        seed = hash_seed_ahead()
        assert seed is not None
        if what == "a variable":
            monkeypatch.setenv("SET_BY_THE_JOB", "1")
        elif what == "the import path":
            monkeypatch.syspath_prepend(tmp_path)
        elif what == "the working folder":
            monkeypatch.chdir(tmp_path)
        else:
            seed = "7"
        assert take_or_start(seed, NO_MODULES, None) is started[1]
    ahead, taken = started
    assert ahead.process.returncode is not None
    assert taken.process.returncode is None


def test_a_fork_server_that_no_job_takes_is_ended(started: list[ForkServerProcess]) -> None:
    with pytest.raises(ValueError, match="the job file"), fork_server_ahead(ON_PROCESSES, NO_MODULES):
        raise ValueError("the job file")
    assert hash_seed_ahead() is None
    assert [each.process.returncode is not None for each in started] == [True]


@pytest.mark.parametrize("run", [None, RunOptions(), RunOptions(slots=SlotKind.PROCESS, resume=True)])
def test_no_fork_server_is_started_ahead_of_a_job_that_cannot_use_it(
    started: list[ForkServerProcess], run: RunOptions | None
) -> None:
    with fork_server_ahead(run):
        assert hash_seed_ahead() is None
    assert started == []


def test_building_a_job_imports_no_modules_of_calls() -> None:
    program = (
        "import sys, threading; from clonos import Job, values, collect, Stream, Tumbling, agg;"
        "Job('a').source(values([1])).map(str).sink(collect());"
        "import clonos.job.handle;"
        "print([name for name in ('urllib3', 'asyncio', 'importlib.metadata', 'http.client') if name in sys.modules])"
    )
    assert printed_by(program) == "[]"


@pytest.mark.parametrize("distribution", ["pyarrow", "clonos", "no_such_distribution"])
def test_versions_are_those_of_the_metadata(distribution: str) -> None:
    try:
        expected = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        expected = "sources"
    assert version_of(distribution) == expected


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another allocator than that of glibc")
def test_slots_of_a_job_with_columns_retain_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import resource; from clonos.io.process.fork_server import import_for_job, warm_up;"
        f"warm_up({WARM_MODULES!r}); import_for_job({COLUMN_MODULES!r});"
        "import pyarrow; pool = pyarrow.default_memory_pool();"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt;"
        "take = lambda: [bytearray(8 << 20) and pyarrow.allocate_buffer(8 << 20).size for _ in range(20)];"
        "take(); before = faults(); take(); print([pool.backend_name, faults() - before < 1000])"
    )
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    assert printed_by(program) == "['system', True]"
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    assert printed_by(program) == "['mimalloc', True]"
