"""Configuration: precedence, types, units, and errors that name the nearest valid key."""

import pickle
import sys
from datetime import timedelta
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.config import (
    BYTES,
    NANOSECONDS,
    RANGES,
    OptionIllTyped,
    OptionUnknown,
    SlotKind,
    describe,
    duration_ns,
    keys,
    resolve_keywords,
    resolve_settings,
    size_bytes,
)
from clonos.core.model.errors import JobError
from clonos.core.model.options import Compression, Options, SpillPolicy
from clonos.core.scaling.autoscaler import ScalingPolicy

NO_FILE = Path("no-such-file.toml")


def test_an_option_that_is_not_set_has_its_default() -> None:
    settings = resolve_settings({}, environment={}, file=NO_FILE)
    assert settings.core == Options()
    assert settings.origins == {}


@pytest.mark.parametrize(
    ("has_pyspark", "keywords", "kind", "reason"),
    [
        (True, {}, SlotKind.SPARK, "PySpark is installed"),
        (False, {}, SlotKind.PROCESS, "PySpark is not installed"),
        (False, {"slots": "auto"}, SlotKind.PROCESS, "PySpark is not installed"),
        (False, {"master": "local[2]"}, SlotKind.SPARK, "a master is set"),
        (True, {"slots": "process", "master": "local[2]"}, SlotKind.PROCESS, ""),
        (False, {"slots": "spark"}, SlotKind.SPARK, ""),
    ],
)
def test_a_job_runs_on_spark_where_it_is_installed_and_else_in_child_processes(
    monkeypatch: pytest.MonkeyPatch, has_pyspark: bool, keywords: dict[str, object], kind: SlotKind, reason: str
) -> None:
    module = ModuleType("pyspark")
    module.__spec__ = ModuleSpec("pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark", module if has_pyspark else None)
    settings = resolve_settings(keywords, environment={}, file=NO_FILE)
    assert (settings.run.slots, settings.slots_reason) == (kind, reason)


def test_each_source_of_options_overrides_the_previous_one(tmp_path: Path) -> None:
    file = tmp_path / "clonos.toml"
    file.write_text('checkpoint_every = "2s"\nstandbys = 2\nparallelism = 2\n', "utf-8")
    settings = resolve_settings(
        {"checkpoint_every": "1s", "standbys": 1, "parallelism": 1, "keepers": 3},
        command_line={"checkpoint_every": "4s"},
        environment={"CLONOS_CHECKPOINT_EVERY": "3s", "CLONOS_STANDBYS": "3", "HOME": "/"},
        file=file,
    )
    assert (settings.core.checkpoint_every_ms, settings.core.standbys) == (4_000, 3)
    assert (settings.run.parallelism, settings.core.keepers) == (2, 3)
    assert settings.origins == {
        "checkpoint_every": "the command line",
        "standbys": "the environment",
        "parallelism": f"the file {file}",
        "keepers": "the keyword",
    }


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("checkpoint_every", "500ms", 500),
        ("checkpoint_every", "1.5 s", 1_500),
        ("checkpoint_every", 2, 2_000),
        ("checkpoint_every", 0.25, 250),
        ("checkpoint_every", "3", 3_000),
        ("checkpoint_every", timedelta(minutes=1), 60_000),
        ("step_cost", "5ms", 5_000),
        ("inflight_memory", "128MiB", 128 << 20),
        ("inflight_memory", 4096, 4096),
        ("inflight_disk", "4GB", 4 * 10**9),
        ("sharing_depth", "full", None),
        ("sharing_depth", None, None),
        ("sharing_depth", "2", 2),
        ("spill_policy", "epoch", SpillPolicy.EPOCH),
        ("causal_logging", "off", False),
        ("causal_logging", True, True),
        ("compress", "always", Compression.ALWAYS),
        ("slots", "process", SlotKind.PROCESS),
        ("py_files", "a.py, b.zip", ("a.py", "b.zip")),
        ("py_files", ["a.py"], ("a.py",)),
        ("record", "total, shop/0", ("total", "shop/0")),
        ("record_limit", "1MiB", 1 << 20),
        ("store", Path("somewhere"), "somewhere"),
        ("scale", {"count": (1, 8), "sum": [2, 4]}, (("count", 1, 8), ("sum", 2, 4))),
        ("scale", "count=1:8, sum=2:4", (("count", 1, 8), ("sum", 2, 4))),
        ("scale_policy", "latency", ScalingPolicy.LATENCY),
        ("scale_policy", len, "len"),
        ("on_scale", print, "print"),
        ("redact", print, "print"),
        ("record_code", "no", False),
        ("on_scale", None, None),
    ],
)
def test_a_value_is_read_as_the_type_of_its_option(key: str, value: object, expected: object) -> None:
    settings = resolve_settings({key: value}, environment={}, file=NO_FILE)
    assert describe(settings)[key] == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("checkpoint_every", "soon"),
        ("checkpoint_every", "5 parsecs"),
        ("checkpoint_every", "1us"),
        ("checkpoint_every", True),
        ("checkpoint_every", -1),
        ("checkpoint_every", float("inf")),
        ("checkpoint_every", float("nan")),
        ("checkpoint_every", "9" * 400 + ".5s"),
        ("checkpoint_every", "9" * 400 + "h"),
        ("inflight_memory", float("inf")),
        ("inflight_memory", 1 << 62),
        ("parallelism", 1 << 62),
        ("inflight_memory", "12 apples"),
        ("parallelism", 1.5),
        ("parallelism", True),
        ("parallelism", -2),
        ("causal_logging", "perhaps"),
        ("causal_logging", 1),
        ("compress", "perhaps"),
        ("compress", True),
        ("slots", "cloud"),
        ("spill_policy", 3),
        ("py_files", 7),
        ("store", 7),
        ("scale_policy", "fast"),
        ("scale_policy", None),
        ("on_scale", "print"),
        ("redact", "print"),
        ("on_scale", 7),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_the_expected_type(key: str, value: object) -> None:
    with pytest.raises(OptionIllTyped, match=f"the keyword sets the option '{key}'.*expected"):
        resolve_settings({key: value}, environment={}, file=NO_FILE)


def test_an_unknown_keyword_is_refused_with_the_nearest_option() -> None:
    with pytest.raises(OptionUnknown, match=r"the keyword sets 'chekpoint_every'.*did you mean 'checkpoint_every'"):
        resolve_settings({"chekpoint_every": "5s"}, environment={}, file=NO_FILE)


def test_an_unknown_variable_is_refused_with_its_spelling() -> None:
    with pytest.raises(OptionUnknown, match=r"CLONOS_STANBYS.*did you mean 'CLONOS_STANDBYS'"):
        resolve_settings({}, environment={"CLONOS_STANBYS": "1"}, file=NO_FILE)


def test_an_unknown_key_of_the_file_is_refused_with_the_files_name(tmp_path: Path) -> None:
    file = tmp_path / "clonos.toml"
    file.write_text("checkpoint_every_ms = 5\n", "utf-8")
    with pytest.raises(
        OptionUnknown, match=r"clonos\.toml sets 'checkpoint_every_ms'.*did you mean 'checkpoint_every'"
    ):
        resolve_settings({}, environment={}, file=file)


def test_a_key_that_resembles_no_option_is_refused_with_all_options() -> None:
    with pytest.raises(OptionUnknown, match=r"the options are:.*checkpoint_every"):
        resolve_settings({"zzzzqqq": 1}, environment={}, file=NO_FILE)


def test_the_variables_of_a_test_run_are_not_options() -> None:
    for name in ("CLONOS_TEST_RUN", "CLONOS_SERVER", "CLONOS_TOKEN", "CLONOS_READ_TOKEN", "CLONOS_RUNS"):
        assert resolve_settings({}, environment={name: "7"}, file=NO_FILE).origins == {}


def test_the_variable_that_chooses_kernels_is_no_option_and_has_one_value() -> None:
    assert resolve_settings({}, environment={"CLONOS_KERNELS": "numpy"}, file=NO_FILE).origins == {}
    with pytest.raises(JobError, match="CLONOS_KERNELS is 'fast', and 'numpy' is the only value: correct or unset it"):
        resolve_settings({}, environment={"CLONOS_KERNELS": "fast"}, file=NO_FILE)


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "clonos.toml"
    file.write_text("checkpoint_every: 5s\n", "utf-8")
    with pytest.raises(JobError, match=r"clonos\.toml is not TOML"):
        resolve_settings({}, environment={}, file=file)


def test_a_file_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    file = tmp_path / "clonos.toml"
    file.write_text("py_files = " + "[" * 5_000, "utf-8")
    with pytest.raises(JobError, match=r"clonos\.toml is not TOML"):
        resolve_settings({}, environment={}, file=file)


def test_errors_survive_pickling() -> None:
    for error in (OptionUnknown("a", "b", "c"), OptionIllTyped("a", "b", "c", "d")):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


def test_no_key_has_a_unit_in_its_name() -> None:
    assert not [key for key in keys() if key.endswith(("_ms", "_us", "_bytes"))]


@given(st.integers(0, 10**6), st.sampled_from(sorted(NANOSECONDS)))
def test_a_written_duration_is_its_number_times_its_unit(number: int, unit: str) -> None:
    assert duration_ns(f"{number}{unit}") == duration_ns(f" {number} {unit} ") == number * NANOSECONDS[unit]


@given(st.integers(0, 10**6), st.sampled_from(sorted(BYTES)))
def test_a_written_size_is_its_number_times_its_unit(number: int, unit: str) -> None:
    assert size_bytes(f"{number}{unit}") == number * BYTES[unit]


def test_replicas_together_with_a_sharing_depth_are_refused_with_the_place_of_each() -> None:
    assert resolve_settings({"replicas": 1}, environment={}, file=NO_FILE).core.replicas == 1
    with pytest.raises(JobError, match=r"the environment sets replicas and the keyword sets sharing_depth"):
        resolve_settings({"sharing_depth": 2}, environment={"CLONOS_REPLICAS": "1"}, file=NO_FILE)


@pytest.mark.parametrize("key", sorted(key for key, (least, _) in RANGES.items() if least == 1))
def test_an_option_that_means_nothing_at_zero_is_refused_there(key: str) -> None:
    with pytest.raises(OptionIllTyped, match=f"sets the option '{key}' to 0, but .*(not below 1|above 0), is expected"):
        resolve_keywords({key: 0})
    resolve_keywords({"heartbeat": "1ms", key: 1})


@pytest.mark.parametrize("key", ["checkpoint_every", "checkpoint_timeout", "lease", "orphan_after", "slots_wait"])
def test_a_duration_without_length_is_refused_where_a_job_could_not_go_on(key: str) -> None:
    with pytest.raises(OptionIllTyped, match=rf"the keyword sets the option '{key}' to '0s', but .*, above 0, is"):
        resolve_keywords({key: "0s"})


@pytest.mark.parametrize(
    ("key", "value", "most"),
    [
        ("heartbeat", "25h", "24h"),
        ("lease", timedelta(hours=24, milliseconds=1), "24h"),
        ("metrics_port", 65_536, "65535"),
        ("max_parallelism", 32_769, "32768"),
        ("domains", 10_001, "10000"),
        ("spare_slots", 10**15, "10000"),
    ],
)
def test_an_option_above_what_a_job_can_do_is_refused_with_the_most_it_can(key: str, value: object, most: str) -> None:
    with pytest.raises(OptionIllTyped, match=rf"sets the option '{key}' to .*, not above {most}, is expected"):
        resolve_keywords({key: value})


@pytest.mark.parametrize(("heartbeat", "lease"), [("6s", None), ("1s", "1999ms"), (None, "100ms")])
def test_a_lease_of_less_than_two_heartbeats_is_refused_since_every_process_would_count_as_dead(
    heartbeat: str | None, lease: str | None
) -> None:
    given = {key: value for key, value in (("heartbeat", heartbeat), ("lease", lease)) if value is not None}
    with pytest.raises(JobError, match=r"lease is \d+ ms and heartbeat is \d+ ms"):
        resolve_keywords(given)
    assert resolve_keywords({"heartbeat": "1s", "lease": "2s"}).core.lease_ms == 2_000
