"""``clonos init``: writes a first job with its input, its test and its options, all of which work as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from clonos.api.step_graph import NAME_PATTERN
from clonos.core.model.errors import EnvironmentFault, JobError

JOB: Final = '''"""Counts the visitors of each city.

    clonos dev job.py    while you write it: shows the rows, and starts again when you save the file
    clonos run job.py
    pytest               test_job.py
"""

from clonos import Job, Stream, files, stdout


def city(line: str) -> str:
    """Returns the city of a line such as "ann Berlin"."""
    return line.split()[1]


def counts(lines: Stream[str]) -> Stream[tuple[str, int]]:
    """Returns each city with its visitors so far, whenever one comes."""
    return lines.map(city, name="city").key_by(lambda name: name).count(name="count")


job = Job("NAME")
counts(job.source(files.lines("visits.txt"), name="visits")).sink(stdout())
'''

TEST: Final = '''"""Tests of job.py: a function by itself, and the steps as a whole. Run them with: pytest"""

from pathlib import Path

from clonos import Job, collect, values
from job import city, counts


def test_the_city_is_the_second_word() -> None:
    assert city("ann Berlin") == "Berlin"


def test_each_visitor_counts_once(tmp_path: Path) -> None:
    job, rows = Job("test", store=tmp_path / "store"), collect()
    counts(job.source(values(["ann Berlin", "bob Paris", "eve Berlin"]))).sink(rows)
    job.run(slots="thread")  # in this process, where a debugger stops at breakpoints
    assert sorted(rows.rows) == [("Berlin", 1), ("Berlin", 2), ("Paris", 1)]
'''

OPTIONS: Final = """# Options of the jobs in this folder. Variables CLONOS_... and the command line override them.

checkpoint_every = "1s"
# parallelism = 2
# store = "s3://bucket/NAME"
"""

INPUT: Final = """ann Berlin
bob Paris
eve Berlin
"""

FILES: Final = {"job.py": JOB, "test_job.py": TEST, "clonos.toml": OPTIONS, "visits.txt": INPUT}


class FileInTheWay(JobError):
    """A file of a new project exists already."""

    path: str

    def __str__(self) -> str:
        return f"{self.path} exists already, and nothing was written. Give clonos init the name of a new folder."


def write_project(name: str | None) -> list[str]:
    """Writes the files of a job ``name`` into a new folder of this name; None writes them into the working folder, by
    whose name the job is called. Returns their paths.

    Raises: JobError: this is not a name. FileInTheWay. EnvironmentFault: a file cannot be written.
    """
    if name is not None and NAME_PATTERN.fullmatch(name) is None:
        raise JobError(
            f"{name!r} cannot be the name of a job: use letters, digits, '_', '-' and '.', at most 64, and begin with a"
            " letter or a digit."
        )
    folder = Path(name or "")
    called = name or re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9_.-]+", "", folder.absolute().name)[:64] or "job"
    for file in FILES:
        if (folder / file).exists():
            raise FileInTheWay(str(folder / file))
    written = []
    try:
        folder.mkdir(exist_ok=True)
        for file, text in FILES.items():
            with (folder / file).open("x", encoding="utf-8") as opened:
                opened.write(text.replace("NAME", called))
            written.append(str(folder / file))
    except OSError as error:
        raise EnvironmentFault(f"{error.filename} cannot be written: {error.strerror}.") from None
    return written
