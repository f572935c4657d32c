"""All targets, by file; they are made in the process that runs them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from tests.fuzz.target import Target

FILES: Final = (
    "of_values",
    "of_column_state",
    "of_wire",
    "of_dialogues",
    "of_worlds",
    "of_stores",
    "of_resuming",
    "of_files",
    "of_column_files",
    "of_texts",
    "of_network",
    "of_kernels",
    "of_row_kernels",
    "of_kafka",
)


@dataclass(frozen=True)
class Choice:
    """A selection of the targets; it is pickled to the processes that make them."""

    names: tuple[str, ...] = ()

    def __call__(self) -> list[Target]:
        """The targets, silent."""
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        made = all_targets()
        unknown = set(self.names) - {target.name for target in made}
        if unknown:
            raise ValueError(f"there is no target {sorted(unknown)[0]!r}; there are: {', '.join(t.name for t in made)}")
        return [target for target in made if not self.names or target.name in self.names]


def all_targets(files: Sequence[str] = FILES) -> list[Target]:
    """Targets of the given files, in their order."""
    return [target for file in files for target in import_module(f"tests.fuzz.targets.{file}").targets()]
