"""Description of a replay that asks for something else than the log has, and of the likely cause (protocol 2)."""

from __future__ import annotations

from typing import Final, NoReturn

from clonos.core.log import determinants as d
from clonos.core.log.asked import ASKED_BYTES, described
from clonos.core.model.errors import ReplayDiverged
from clonos.core.model.suspect import likely_cause
from clonos.core.ports.operator_chain import Chain, StepFailed

OTHER_ARGUMENTS: Final = (
    "the request has a value that no log has: a time, a random number, the environment, a variable outside declared"
    " state, or the order of a set"
)
OTHER_WAY: Final = (
    "the code takes another way: it depends on a time, a random number, the environment, a variable outside declared"
    " state, or the order of a set, or it was changed"
)
OTHER_ERROR: Final = (
    "the text or the class of the error depends on a time, a random number, the environment, the order of a set, or a"
    " variable outside declared state"
)
OTHER_OUTPUT: Final = (
    "the output depends on a time, a random number, the environment, a variable outside declared state, or the order of"
    " a set"
)

ASKED: Final = {
    d.READ: "records of a source",
    d.END: "the end of the input",
    d.CLOCK: "the time",
    d.SEED: "random numbers",
    d.TIMER: "timers",
    d.TRIGGER: "a barrier",
    d.LAST_TRIGGER: "the last barrier",
    d.DRAIN: "the end of what waits before a change of widths",
    d.HELD: "a barrier that waits before a change of widths",
    d.ROUTED: "the error output for a record",
    d.SPLITS: "new splits of a source",
    d.STEP: "the next step",
}
"""What each determinant answers, except calls, which have a name."""

OTHER: Final = ", with other arguments"

TEXT_CHARACTERS_MAX: Final = 120


def logged_text(entry: d.Entry) -> str:
    """Describes what the log has."""
    tag, _, asked, data = entry
    match tag:
        case d.CALL | d.COMPLETION:
            return f"a call of {described(asked)}"
        case d.PART:
            return f"a call of {described(asked)} inside an asynchronous call"
        case d.INTENT:
            return f"a call of {described(int.from_bytes(data[:ASKED_BYTES], 'big'))}, with an effect"
        case d.ROUTED:
            return f"an error for the error output ({_shortened(data)})"
        case _:
            return ASKED[tag]


def asked_text(tag: int, service: str, wanted: int | bytes | None, logged: d.Entry) -> str:
    """Describes what a replay asks for in place of a logged entry. ``wanted``: as in ``TaskLog.follow``."""
    match tag:
        case d.CALL | d.COMPLETION | d.INTENT:
            text = f"a call of {service}{', with an effect' if tag == d.INTENT else ''}"
            return f"{text}{OTHER}" if text == logged_text(logged) else text
        case d.ROUTED if isinstance(wanted, bytes):
            return f"an error for the error output ({_shortened(wanted)})"
        case _:
            return ASKED[tag]


def cause_of(logged: d.Entry, asked: str) -> str:
    """Returns the likely cause of a divergence."""
    if asked.endswith(OTHER):
        return OTHER_ARGUMENTS
    return OTHER_ERROR if logged[0] == d.ROUTED and asked.startswith("an error for") else OTHER_WAY


def raise_explained(error: StepFailed | ReplayDiverged, divergence: ReplayDiverged | None, chain: Chain) -> NoReturn:
    """Raises the error that has ended a task, a divergence with what is suspect in its step as the likely cause.

    ``divergence``: None if the replay has not diverged. User code may have raised another error at it, whose place it
    takes.

    Raises: StepFailed, ReplayDiverged: the error.
    """
    if divergence is None:
        raise error
    step = error.at.step if isinstance(error, StepFailed) else ""
    divergence.name_cause(likely_cause(chain.suspects(step), step, divergence.cause))
    if isinstance(error, StepFailed):
        raise error from divergence
    raise error


def _shortened(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}..."
