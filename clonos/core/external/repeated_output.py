"""Alarm of output that had left before a rollback (protocol 7.1): of slots for running tasks, of a start for others."""

from __future__ import annotations

from clonos.core.model.ids import view_name


def repeated_output(
    name: str, generation: int, next_number: int, superseded_next: int | None, knows_output: bool
) -> tuple[str, dict[str, str | int]] | None:
    """Returns the text of the alarm and its fields; None if nothing comes again. ``name``: that of the task.

    The others are those of a registration. A system that does not know what it has gives only the first number.
    """
    fields: dict[str, str | int] = {"first": next_number, "generation": view_name(generation)}
    if not knows_output:
        text = (
            f"output from {next_number} on of {name} may have left before the rollback and may leave again,"
            " with other content"
        )
        return text, fields
    if superseded_next is None or superseded_next <= next_number:
        return None
    text = (
        f"output {next_number} to {superseded_next - 1} of {name} had left before the rollback and may leave again,"
        " with other content"
    )
    return text, {**fields, "next": superseded_next}
