"""What is imported before a slot is forked."""

from __future__ import annotations

from clonos.job.deployment import WARM_MODULES
from tests.unit.values.samples import printed_by


def test_the_module_of_a_job_finds_everything_of_the_library_imported_in_a_slot() -> None:
    program = (
        "import sys; from clonos.io.process.fork_server import warm_up;"
        f"warm_up({WARM_MODULES!r}); known = set(sys.modules);"
        "import clonos.demo.wordcount;"
        "print(sorted(name for name in set(sys.modules) - known if not name.startswith('clonos.demo')))"
    )
    assert printed_by(program) == "[]"
