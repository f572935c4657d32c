"""Restart strategies: how long a job waits after each failure, and when it gives up."""

from __future__ import annotations

import pytest

from clonos.job.continuing.restart_strategy import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategyInvalid,
    restart_strategy,
)


def test_a_fixed_delay_allows_as_many_restarts_as_it_has_attempts() -> None:
    strategy = FixedDelay(attempts=2, seconds=0.5)
    assert [strategy.delay_s(failures, (0.0,)) for failures in (1, 2, 3)] == [0.5, 0.5, None]


def test_without_restarts_the_first_loss_is_the_end() -> None:
    assert NoRestart().delay_s(1, (0.0,)) is None


def test_an_exponential_delay_grows_up_to_its_maximum() -> None:
    strategy = ExponentialDelay(initial_s=1, maximum_s=5, multiplier=2, attempts=5)
    assert [strategy.delay_s(failures, (0.0,)) for failures in range(1, 7)] == [1, 2, 4, 5, 5, None]
    assert ExponentialDelay().delay_s(10**6, (0.0,)) == 60


def test_a_failure_rate_counts_the_failures_of_its_interval_only() -> None:
    strategy = FailureRate(failures=2, interval_s=10, seconds=1)
    assert strategy.delay_s(2, (0.0, 5.0)) == 1
    assert strategy.delay_s(3, (0.0, 5.0, 9.0)) is None
    assert strategy.delay_s(3, (0.0, 5.0, 10.0)) == 1


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("none", NoRestart()),
        ("fixed", FixedDelay()),
        ("fixed-delay:attempts=0", FixedDelay(attempts=0)),
        ("fixed-delay:attempts=3,delay=500ms", FixedDelay(3, 0.5)),
        ("exponential:initial=2s,max=1min,multiplier=1.5,attempts=7", ExponentialDelay(2.0, 60.0, 1.5, 7)),
        ("failure-rate:failures=3,interval=5min,delay=0", FailureRate(3, 300.0, 0.0)),
        ("rate", FailureRate()),
    ],
)
def test_a_text_names_a_strategy_and_its_settings(text: str, strategy: object) -> None:
    assert restart_strategy(text) == strategy


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("always", "is unknown"),
        ("fixed-delay:tries=3", "has no setting 'tries'"),
        ("fixed-delay:attempts=-1", "has the wrong value '-1' for attempts"),
        ("fixed-delay:delay=soon", "has the wrong value 'soon' for delay"),
        ("exponential-delay:multiplier=0.5", "has the wrong value '0.5' for multiplier"),
        ("failure-rate:failures=1001", "has the wrong value '1001' for failures"),
    ],
)
def test_a_wrong_text_is_refused_with_all_strategies(text: str, problem: str) -> None:
    with pytest.raises(RestartStrategyInvalid) as refused:
        restart_strategy(text)
    assert problem in str(refused.value)
    assert "failure-rate:failures=3,interval=5min,delay=1s" in str(refused.value)
