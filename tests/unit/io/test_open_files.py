"""The limit of open files is raised if possible, and never lowered."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from clonos.io.system.open_files import FILES_MAX, raise_files_limit


@pytest.fixture(autouse=True)
def limits() -> Iterator[tuple[int, int]]:
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield found
    resource.setrlimit(resource.RLIMIT_NOFILE, found)


def test_the_soft_limit_is_raised_to_the_hard_limit_or_the_useful_maximum(limits: tuple[int, int]) -> None:
    hard = limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    most = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    assert raise_files_limit() == most
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)


def test_a_higher_soft_limit_is_not_lowered(limits: tuple[int, int]) -> None:
    hard = limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    assert raise_files_limit(files_max=128) == 256
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, hard)


@pytest.mark.parametrize("refusal", [ValueError, OSError])
def test_a_refusing_system_leaves_the_limit_unchanged(
    limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch, refusal: type[Exception]
) -> None:
    def refuse(kind: int, wanted: tuple[int, int]) -> None:
        raise refusal

    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    with monkeypatch.context() as patched:
        patched.setattr(resource, "setrlimit", refuse)
        assert raise_files_limit() == 256
