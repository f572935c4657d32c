"""Mutants: one rule of the protocol replaced by a wrong one, in this process, for a while.

They show that the oracles find violations. The core has no switches for them: a mutant swaps one handler, method or
table entry of the real code, by name, and restores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any


class Mutation:
    """Set of swaps that are undone together, the last one first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def swap(self, owner: Any, name: str, wrong: Any) -> None:
        """Replaces an existing attribute of a class or a module."""
        right = vars(owner)[name]
        setattr(owner, name, wrong)
        self._undo.append(lambda: setattr(owner, name, right))

    def wrap(self, owner: Any, name: str, wrong: Callable[..., Any]) -> None:
        """Replaces a method by ``wrong(right, self, ...)``."""
        right = vars(owner)[name]

        def replaced(*arguments: Any, **named: Any) -> Any:
            return wrong(right, *arguments, **named)

        self.swap(owner, name, replaced)

    def swap_entry(self, table: dict[Any, Any], key: Any, wrong: Any) -> None:
        """Replaces a handler of a table."""
        right = table[key]
        table[key] = wrong
        self._undo.append(lambda: table.__setitem__(key, right))

    def wrap_entry(self, table: dict[Any, Any], key: Any, wrong: Callable[..., Any]) -> None:
        """Replaces a handler of a table by ``wrong(right, ...)``."""
        self.swap_entry(table, key, partial(wrong, table[key]))

    def undo(self) -> None:
        """Restores everything."""
        while self._undo:
            self._undo.pop()()


@dataclass(frozen=True)
class Mutant:
    """Wrong rule. ``rule``: the right one, in a sentence. ``section``: of ``docs/protocol.md``."""

    name: str
    section: str
    rule: str
    apply: Callable[[Mutation], None]


MUTANTS: dict[str, Mutant] = {}


def mutant(section: str) -> Callable[[Callable[[Mutation], None]], Callable[[Mutation], None]]:
    """Registers the function that applies a mutant and bears its name; its docstring states the rule it breaks."""

    def register(apply: Callable[[Mutation], None]) -> Callable[[Mutation], None]:
        name, rule = apply.__name__, apply.__doc__
        assert name not in MUTANTS, name
        assert rule is not None, name
        MUTANTS[name] = Mutant(name, section, rule, apply)
        return apply

    return register


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Applies a mutant inside the ``with`` block."""
    mutation = Mutation()
    try:
        MUTANTS[name].apply(mutation)
        yield
    finally:
        mutation.undo()
