"""Test that a job keeps its promise although its processes die: `rate_limit.py` in simulated clusters.

Gives a report, or the smallest world in which the job fails. Each world kills processes, cuts connections and loses
messages, in one process and in virtual time, so a world takes milliseconds.

    pip install 'clonos[testing]'
    pytest examples/test_rate_limit.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from clonos.testing import Outputs
from rate_limit import BURST, REQUESTS, job


def decided_once(outputs: Outputs) -> None:
    decided = [(number, client) for number, client, _ in outputs.rows]
    assert sorted(decided) == sorted(REQUESTS)
    admitted = Counter(client for _, client, decision in outputs.rows if decision == "admitted")
    assert all(count >= BURST for count in admitted.values())


def test_each_request_is_decided_once(crash_test: Callable[..., Any]) -> None:
    crash_test(job, seeds=range(10), check=decided_once, compare=lambda row: row[:2])
