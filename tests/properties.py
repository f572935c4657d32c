"""Examples of property tests have seconds, not only a number.

With ``--example-seconds S`` each property test runs its first examples, then more of them until its own number is
reached or S seconds have passed. The examples are the same in each run; how many of them run depends on the machine,
and the summary of the run says it.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import hypothesis
import pytest
from xxhash import xxh3_64_intdigest

FIRST_EXAMPLES: Final = 8
GROWTH: Final = 2
"""A portion of examples is this many times as large as all before it, so that few portions begin anew."""


def is_property(item: pytest.Item) -> bool:
    """Says whether Hypothesis gives a test its arguments."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def run_in_portions(item: pytest.Function, call: Callable[[], Any], seconds: float) -> tuple[int, int]:
    """Calls a property test for its first examples, and again for further ones while its seconds last. Returns how many
    examples it ran and how many it has."""
    test: Any = getattr(item.obj, "__func__", item.obj)
    own, own_seed = test._hypothesis_internal_use_settings, test._hypothesis_internal_use_seed
    began_s, done, portion = time.monotonic(), 0, 0
    try:
        while True:
            size = min(own.max_examples - done, max(FIRST_EXAMPLES, GROWTH * done))
            # Explicit examples and those that failed before come once.
            phases = own.phases if not portion else [hypothesis.Phase.generate, hypothesis.Phase.shrink]
            test._hypothesis_internal_use_settings = hypothesis.settings(own, max_examples=size, phases=phases)
            if own.derandomize and portion:  # else each portion would have the examples of the first one
                test._hypothesis_internal_use_seed = xxh3_64_intdigest(f"{item.nodeid} {portion}".encode())
            call()
            done, portion = done + size, portion + 1
            if done >= own.max_examples or time.monotonic() - began_s >= seconds:
                return done, own.max_examples
    finally:
        test._hypothesis_internal_use_settings, test._hypothesis_internal_use_seed = own, own_seed
