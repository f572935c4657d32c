"""Options for the tests of the core."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known when these tests are named on the command line: pytest tests/unit/core --rewrite-traces."""
    parser.getgroup("clonos").addoption("--rewrite-traces", action="store_true", help="write golden dialogues anew")
