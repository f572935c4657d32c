"""Rows that a server refuses for good, in a folder: one file of JSON lines per task and life of it.

A row may be there twice, since a row that was refused shortly before a failure is sent and refused again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from clonos.connectors.connector_errors import OutputFailed
from clonos.connectors.json_text import json_lines
from clonos.operators.connector_contract import WriterIdentity


class DeadLetters:
    """File of one writer, created with the first row. Each row is on the disk when ``add`` returns."""

    def __init__(self, folder: str, identity: WriterIdentity) -> None:
        task = identity.task_name.replace("/", "-")
        self._path = Path(folder) / f"{task}-{identity.generation}-{identity.incarnation}.jsonl"

    def add(self, letter: dict[str, Any]) -> None:
        """Appends a row with its reason.

        Raises: OutputFailed: the folder cannot be written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "ab") as file:
                file.write(json_lines((letter,), "dead letters"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputFailed(str(self._path), "written", error.strerror or str(error)) from error
