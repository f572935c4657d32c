"""Time, random numbers and UUIDs: the same in the next incarnation, real outside a job."""

from __future__ import annotations

import random as stdlib
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import cloudpickle
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.ports.recorder import running
from clonos_services import clock, epoch_rng, random
from clonos_services.epoch_rng import ReseedRefused, TooManyStreams
from clonos_services.identity import uuid4
from tests.harnesses.fake_recorder import FIRST_INSTANT_NS, FakeRecorder


def draws_of(recorder: FakeRecorder, draw: Callable[[], object], epochs: int = 2) -> list[object]:
    """Three draws in each of some epochs."""
    drawn = []
    with running(recorder):
        for _ in range(epochs):
            drawn += [draw() for _ in range(3)]
            recorder.begin_epoch()
    return drawn


def test_one_step_has_one_timestamp_and_one_log_entry() -> None:
    recorder = FakeRecorder()
    with running(recorder):
        first = clock.now()
        assert first == datetime.fromtimestamp(FIRST_INSTANT_NS // 10**9, UTC)
        assert (clock.now(), clock.time_ns()) == (first, FIRST_INSTANT_NS)
        assert clock.time() == clock.monotonic() == FIRST_INSTANT_NS / 10**9
        recorder.begin_step()
        assert clock.now() == first + timedelta(milliseconds=1)
    assert [tag for tag, _ in recorder.log] == ["CLOCK", "CLOCK"]


def test_each_exact_reading_has_its_own_timestamp() -> None:
    with running(FakeRecorder()):
        readings = [clock.time_ns(), clock.time_ns(exact=True), clock.monotonic_ns(exact=True), clock.time_ns()]
    assert readings == [FIRST_INSTANT_NS + offset * 1_000_000 for offset in (0, 1, 2, 2)]


def test_the_next_incarnation_reads_the_same_timestamps() -> None:
    def instants(recorder: FakeRecorder) -> list[object]:
        with running(recorder):
            return [clock.now(), clock.now(exact=True), clock.time(exact=True), clock.monotonic()]

    recorder = FakeRecorder()
    assert instants(recorder) == instants(recorder.successor())


def test_outside_a_job_the_clock_is_the_real_one() -> None:
    before = time.time_ns()
    readings = [clock.time_ns(), int(clock.time() * 10**9), int(clock.now().timestamp() * 10**9)]
    after = time.time_ns()
    assert all(before - 1_000 <= reading <= after + 1_000 for reading in readings)
    assert clock.now().tzinfo is UTC
    assert time.monotonic() <= clock.monotonic() <= time.monotonic()


def test_the_next_incarnation_draws_the_same_numbers_which_differ_per_epoch_and_task() -> None:
    recorder = FakeRecorder()
    drawn = draws_of(recorder, random.random)
    assert draws_of(recorder.successor(), random.random) == drawn
    assert len(set(drawn)) == len(drawn)
    assert draws_of(FakeRecorder(life=7), random.random) != drawn


ARGUMENTS: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("random", "getstate", "triangular"), ()),
    **dict.fromkeys(("expovariate", "paretovariate"), (0.5,)),
    **dict.fromkeys(("betavariate", "gammavariate", "vonmisesvariate", "weibullvariate"), (1.5, 2.5)),
    **dict.fromkeys(("uniform", "gauss", "lognormvariate", "normalvariate"), (1.5, 2.5)),
    **dict.fromkeys(("choice", "choices"), ("abcdef",)),
    "binomialvariate": (10, 0.3),
    "getrandbits": (70,),
    "randbytes": (9,),
    "randint": (1, 9),
    "randrange": (100,),
    "sample": ("abcdef", 3),
}


def test_every_random_function_of_the_standard_library_exists() -> None:
    public = {
        name for name in dir(stdlib.Random) if not name.startswith("_") and callable(getattr(stdlib.Random, name))
    }
    assert public <= {*ARGUMENTS, "shuffle", "seed", "setstate"}
    assert all(callable(getattr(random, name)) for name in public)


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if hasattr(stdlib, name)])
def test_a_function_draws_the_same_numbers_as_the_standard_library_with_the_epochs_seed(name: str) -> None:
    function: Callable[..., object] = getattr(random, name)
    recorder = FakeRecorder()
    drawn = draws_of(recorder, lambda: function(*ARGUMENTS[name]))
    assert draws_of(recorder.successor(), lambda: function(*ARGUMENTS[name])) == drawn
    seeds = [epoch_rng.derived_seed(bytes([0, epoch]) * 8, "random", "") for epoch in range(2)]
    twins = [stdlib.Random(seed) for seed in seeds]
    assert drawn == [getattr(twin, name)(*ARGUMENTS[name]) for twin in twins for _ in range(3)]


def test_the_next_incarnation_shuffles_the_same() -> None:
    def shuffled() -> object:
        items = list(range(20))
        random.shuffle(items)
        return items

    recorder = FakeRecorder()
    drawn = draws_of(recorder, shuffled)
    assert draws_of(recorder.successor(), shuffled) == drawn
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    "set_state", [lambda: random.seed(7), lambda: random.setstate(stdlib.getstate())], ids=["seed", "setstate"]
)
def test_setting_the_state_of_a_causal_stream_in_a_job_is_refused(set_state: Callable[[], object]) -> None:
    with running(FakeRecorder()), pytest.raises(ReseedRefused, match=r"each epoch seeds the causal streams"):
        set_state()


def test_named_streams_are_independent() -> None:
    def with_another(recorder: FakeRecorder, others: int) -> list[float]:
        with running(recorder):
            drawn = []
            for _ in range(5):
                drawn.append(random.stream("a").random())
                for _ in range(others):
                    random.random()
                    random.stream("b").gauss()
                    uuid4()
                    random.numpy(name="a").random()
            return drawn

    drawn = with_another(FakeRecorder(), 0)
    assert with_another(FakeRecorder(), 3) == drawn
    assert len(set(drawn)) == 5


def test_two_handles_with_one_name_share_a_stream() -> None:
    with running(FakeRecorder()):
        both = [random.stream("a").random(), random.stream("a").random()]
    with running(FakeRecorder()):
        held = random.stream("a")
        assert [held.random(), held.random()] == both


@given(st.lists(st.sampled_from(["first", "second", "epoch"]), max_size=40))
def test_tasks_that_alternate_in_one_thread_have_separate_streams(turns: list[str]) -> None:
    recorders = {"first": FakeRecorder(life=1), "second": FakeRecorder(life=2)}
    drawn: dict[str, list[float]] = {"first": [], "second": []}
    alone: dict[str, list[float]] = {"first": [], "second": []}
    stream = random.stream("turns")
    for turn in turns:
        if turn == "epoch":
            recorders["first"].begin_epoch()
        else:
            with running(recorders[turn]):
                drawn[turn].append(stream.random())
    for name, life in (("first", 1), ("second", 2)):
        recorder = FakeRecorder(life=life)
        with running(recorder):
            for turn in turns:
                if turn == name:
                    alone[name].append(stream.random())
                elif turn == "epoch" and name == "first":
                    recorder.begin_epoch()
    assert drawn == alone


def test_a_stream_is_a_random_random_and_is_pickled_by_name() -> None:
    stream = random.stream("a")
    assert isinstance(stream, stdlib.Random)
    with running(FakeRecorder()):
        first = stream.random()
        travelled = cloudpickle.loads(cloudpickle.dumps(lambda: stream.random()))
        second = travelled()
    with running(FakeRecorder()):
        assert [stream.random(), stream.random()] == [first, second]


def test_a_numpy_generator_held_by_user_code_is_reseeded_each_epoch() -> None:
    held = random.numpy(name="noise")
    assert isinstance(held, numpy.random.Generator)
    recorder = FakeRecorder()
    drawn = draws_of(recorder, lambda: held.normal(size=2).tolist())
    travelled = cloudpickle.loads(cloudpickle.dumps(held))
    assert draws_of(recorder.successor(), lambda: travelled.normal(size=2).tolist()) == drawn
    assert len({str(values) for values in drawn}) == len(drawn)


def test_a_generator_that_would_outlive_its_epoch_is_refused() -> None:
    with running(FakeRecorder()):
        with pytest.raises(ReseedRefused, match="spawn"):
            random.numpy().spawn(2)
        with pytest.raises(ReseedRefused, match="seed"):
            random.stream("a").seed(1)


def test_numpys_bit_generator_is_seeded_by_the_epoch() -> None:
    with running(FakeRecorder()):
        held = random.numpy()
        first = numpy.random.Generator(held.bit_generator).random()
    with running(FakeRecorder()):
        assert random.numpy().random() == first


def test_more_names_than_the_limit_is_an_error() -> None:
    recorder = FakeRecorder()
    named = partial(epoch_rng.source_of, recorder, "stream", make=stdlib.Random, names_max=2)
    first = named("a")
    named("b")
    assert named("a") is first
    with pytest.raises(TooManyStreams, match="'c'"):
        named("c")
    recorder.begin_epoch()
    named("c")


def test_outside_a_job_randomness_is_that_of_the_standard_library() -> None:
    state = stdlib.getstate()
    try:
        stdlib.seed(7)
        ours = [random.random(), random.randint(1, 100), random.stream("any").gauss()]
        random.seed(7)
        assert [stdlib.random(), stdlib.randint(1, 100), stdlib.gauss()] == ours
    finally:
        stdlib.setstate(state)
    assert 0 <= random.numpy().random() < 1


def test_the_next_incarnation_draws_the_same_uuids() -> None:
    recorder = FakeRecorder()
    drawn = draws_of(recorder, uuid4)
    assert draws_of(recorder.successor(), uuid4) == drawn
    assert len(set(drawn)) == len(drawn)
    for identity in (*drawn, uuid4()):
        assert isinstance(identity, uuid.UUID)
        assert (identity.version, identity.variant) == (4, uuid.RFC_4122)
