"""Fixtures of the tests on real processes."""

from __future__ import annotations

import pytest

from clonos.core.coordinator import event_handlers


@pytest.fixture
def first_checkpoint_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first checkpoint of a new job waits for its interval, so that a long one means no checkpoint."""
    monkeypatch.setattr(event_handlers, "note_first_record", lambda *_: None)
