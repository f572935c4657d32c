"""Methods of process functions whose names look as if the runtime called them."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from tests.unit.operators.driver import Given


class WithOnEnd:
    """Expects a call at the end of the input."""

    def process(self, row: Any, context: Any) -> None:
        """Does nothing."""

    def on_end(self, context: Any) -> None:
        """Is never called."""


class WithJavaName(WithOnEnd):
    """Has the name that Flink has in Java, and calls the other one."""

    def process(self, row: Any, context: Any) -> None:
        """Calls the method of its base."""
        self.on_end(context)

    def onTimer(self, timestamp: Any, context: Any) -> None:  # noqa: N802  as in Java
        """Is never called."""


class Dispatching:
    """Calls its handlers, one of them by name."""

    def process(self, row: Any, context: Any) -> None:
        """Calls the handler of the row."""
        getattr(self, f"on_{row}")(context)

    def on_created(self, context: Any) -> None:
        """Does nothing."""


class Calling(Dispatching):
    """Calls a handler, has the hooks that exist and a method with a similar name."""

    def process(self, row: Any, context: Any) -> None:
        """Calls the handler."""
        self.on_created(context)

    def on_timer(self, timestamp: Any, context: Any) -> None:
        """Does nothing."""

    def once(self) -> None:
        """Does nothing."""


@pytest.mark.parametrize(
    ("function", "name"), [(WithOnEnd, "on_end"), (WithOnEnd(), "on_end"), (WithJavaName, "onTimer")]
)
def test_a_method_that_nothing_calls_is_refused_with_the_hooks_that_exist(function: Any, name: str) -> None:
    with pytest.raises(InvalidJob) as raised:
        JobGraph("job").source(Given([])).process(function, name="final")
    text = str(raised.value)
    assert f"has a method {name}(), which nothing calls" in text
    assert "The runtime calls process, on_timer, on_event_timer, open and close" in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("function", [Dispatching, Calling, Calling()])
def test_handlers_that_the_class_calls_itself_are_accepted(function: Any) -> None:
    JobGraph("job").source(Given([])).process(function)
