"""Lines of user code that a replay may not repeat, as ``clonos check`` finds them: suspects of a divergence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

RANKS: Final = ("CLN1", "CLN2", "CLN5", "CLN4", "CLN3", "CLN601", "CLN602", "CLN7")
"""Beginnings of the codes of suspects, the likeliest cause first: clocks, randomness, memory outside of state,
networks, files and the environment, the order of sets, hashes, threads. Findings about the graph (8xx) explain no
divergence."""

SUSPECTS_MAX: Final = 20
"""Suspects of a step that a job carries along."""

SHOWN_MAX: Final = 3
"""Suspects that one message names."""


class Suspect(NamedTuple):
    """Line that may be the cause of a divergence.

    ``code``: that of the rule. ``place``: name of the file, and line; "" if the step gets a function without source.
    ``what``: what is done there. ``advice``: what to write instead. ``is_silenced``: a comment silences the finding.
    """

    code: str
    place: str
    what: str
    advice: str
    is_silenced: bool = False

    @property
    def text(self) -> str:
        """Text for users."""
        silenced = ", although a comment # clonos: ok silences it" if self.is_silenced else ""
        return f"{self.place} {self.what} ({self.advice}){silenced}".lstrip()


NO_SUSPECTS: Final[Mapping[str, tuple[Suspect, ...]]] = MappingProxyType({})
"""Suspects by step, without any."""


def ranked(suspects: Iterable[Suspect]) -> tuple[Suspect, ...]:
    """Returns the suspects among findings of one step, the likeliest first: those that a comment silences last."""
    return tuple(sorted((each for each in suspects if each.code.startswith(RANKS)), key=_rank)[:SUSPECTS_MAX])


def _rank(suspect: Suspect) -> tuple[bool, int]:
    return suspect.is_silenced, next(rank for rank, code in enumerate(RANKS) if suspect.code.startswith(code))


def likely_cause(suspects: Iterable[Suspect], step: str, otherwise: str) -> str:
    """Returns the likely cause of a divergence, as the end of a sentence.

    Args:
        suspects: the likeliest first.
        step: name of the step that has diverged, "" if it is not known.
        otherwise: the kinds of causes, if there is no suspect.
    """
    texts = list(dict.fromkeys(each.text for each in suspects))
    if not texts:
        where = f"the step {step} and the steps before it" if step else "the functions of this task"
        return (
            f"{otherwise}. clonos check finds no such line in {where}: clonos replay RECORD --elsewhere shows what"
            " depends on the process"
        )
    others = "; ".join(texts[1:SHOWN_MAX])
    more = f"; and {len(texts) - SHOWN_MAX} more, see clonos check" if len(texts) > SHOWN_MAX else ""
    return f"{texts[0]}.\nAlso possible: {others}{more}" if others else texts[0]
