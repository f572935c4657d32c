"""Tags: names of the side outputs of a step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic

from clonos.core.model.errors import JobError
from clonos.core.model.wrong_calls import explains_calls

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)  # Tag("late") is a Tag[Any]
else:
    from typing import TypeVar

    T = TypeVar("T")

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class InvalidTag(JobError):
    """The name of a tag is malformed."""

    given: str

    def __str__(self) -> str:
        return (
            f"{self.given} cannot be the name of a tag: it has 1 to 64 letters, digits, '_', '-' and '.', and begins"
            " with a letter or a digit."
        )


@explains_calls
@dataclass(frozen=True)
class Tag(Generic[T]):
    """Side output of a step: records that are no results of it, such as late or rejected ones.

    Example::

        rejected = Tag[str]("rejected")
        parsed = lines.process(Parse)  # calls context.output(rejected, line)
        parsed.side_output(rejected).sink(files.lines("rejected/"))
    """

    name: str

    def __post_init__(self) -> None:
        if NAME.fullmatch(str(self.name)) is None:
            raise InvalidTag(f"{self.name!r:.80}")
