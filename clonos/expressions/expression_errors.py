"""Errors of expressions: misuse in Python, a column or type that does not fit, a record that cannot be computed."""

from __future__ import annotations

from clonos.core.model.errors import JobError

TEXT_CHARACTERS_MAX = 200


def shortened(text: str) -> str:
    """Returns the text of an expression, with at most 200 characters."""
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[: TEXT_CHARACTERS_MAX - 3]}..."


class ExpressionMisused(JobError, TypeError):
    """An expression is used as a value, or is made of something that it cannot hold."""

    expression: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{shortened(self.expression)} {self.problem}. {self.advice}"


class CannotBind(Exception):
    """A part of an expression does not fit the columns; ``InvalidExpression`` adds the step and the columns."""

    def __init__(self, expression: str, problem: str) -> None:
        super().__init__(expression, problem)
        self.expression, self.problem = expression, problem


class InvalidExpression(JobError):
    """An expression of a step names a column that its input lacks, or does not fit the types of the columns."""

    step: str
    expression: str
    problem: str
    columns: str

    def __str__(self) -> str:
        return (
            f"the step {self.step} cannot compute {shortened(self.expression)}: {self.problem}."
            f" Its input has the columns {self.columns or '(none)'}."
        )


class NotComputable(ValueError):
    """A record has a value that an expression cannot compute. It goes to the error output if there is one."""
