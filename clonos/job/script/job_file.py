"""The file of a job: a Python file with a ``Job`` at its top level, as the command line and the server load it."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clonos.core.model.errors import ClonosError, JobError
from clonos.io.system.collections_paused import collections_paused

if TYPE_CHECKING:
    from clonos.job import Job


NONE: Final = 'none. Create it outside of functions, and of if __name__ == "__main__", which "clonos run" leaves out.'


class JobFileRaised(JobError):
    """The file of a job raised an exception while it was loaded."""

    file: str
    error: str

    def __str__(self) -> str:
        return f"{self.file} raised {self.error}"


def put_on_path(target: str) -> Path:
    """Puts the folder of a job's file on the import path. Returns the file. Raises: JobError when it does not exist."""
    file_name = target.partition(":")[0]
    file = Path(file_name).resolve()
    if not file.is_file():
        raise JobError(f"the file {file_name!r} does not exist. Name a Python file that has a Job.")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    return file


def load_job(target: str) -> Job:
    """Returns the job of ``FILE`` or ``FILE:NAME``: the only ``Job`` of the file, or the one with this name.

    The file is imported under its stem, with its folder on the import path, as a module beside it would import it.

    Raises: JobError when the file does not exist, is no Python file, or has no such job or more than one.
    """
    from clonos.job import Job
    from clonos.job.script.script_exit import loading

    file_name, _, name = target.partition(":")
    file = put_on_path(target)
    module = sys.modules.get(file.stem)
    if module is None or getattr(module, "__file__", None) != str(file):
        specification = importlib.util.spec_from_file_location(file.stem, file)
        if specification is None or specification.loader is None:
            raise JobError(f"{file_name!r} is not a Python file. Name a file that ends in .py.")
        module = importlib.util.module_from_spec(specification)
        sys.modules[file.stem] = module
        with loading(file_name), collections_paused():
            try:
                specification.loader.exec_module(module)
            except ClonosError:
                raise
            except SystemExit as ended:
                what = f"SystemExit: {ended.code}. A file is loaded for its Job, and must not end the program"
                raise JobFileRaised(file_name, what).with_traceback(ended.__traceback__) from ended
            except Exception as error:
                text = "".join(traceback.format_exception_only(error)).strip()  # of a syntax error the place too
                raise JobFileRaised(file_name, text + _import_of(error)).with_traceback(error.__traceback__) from error
    jobs = {key: value for key, value in vars(module).items() if isinstance(value, Job)}
    if name:
        if name not in jobs:
            raise JobError(f"{file_name!r} has no Job called {name!r}; it has: {', '.join(jobs) or 'none'}.")
        return jobs[name]
    distinct = list({id(job): job for job in jobs.values()}.values())
    if len(distinct) != 1:
        found = f"{len(distinct)} of them: {', '.join(jobs)}. Name one: {file_name}:NAME" if distinct else NONE
        raise JobError(f"{file_name!r} must have exactly one Job at its top level, but it has {found}")
    return distinct[0]


def _import_of(error: Exception) -> str:
    """Returns the import of a public name that a file uses without one; "" for anything else."""
    for module in ("clonos", "clonos.agg"):
        if isinstance(error, NameError) and error.name in importlib.import_module(module).__all__:
            return f". It is in {module}: from {module} import {error.name}"
    return ""
