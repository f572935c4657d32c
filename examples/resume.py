"""Stop a job in the middle, and continue it.

Gives all numbers once, although the job was stopped after its first checkpoint and started again. `handle.stop()` takes
a last checkpoint; Ctrl-C on `clonos run` does the same, and `clonos run resume.py --resume` continues. After a crash of
the driver the job continues at its last completed checkpoint.

    python examples/resume.py
"""

from __future__ import annotations

import time

from clonos import Job, files, values

OUTPUT = "out/resume"


def slowly(number: int) -> int:
    time.sleep(0.001)
    return number


job = Job("resume", checkpoint_every="100ms")
job.source(values(range(1_500), batch=50), name="numbers").map(slowly, name="slowly").sink(files.jsonl(OUTPUT))

if __name__ == "__main__":
    with job.start(slots="process", overwrite=True) as handle:
        while handle.status().checkpoint < 1:
            time.sleep(0.01)
        handle.stop()
        print(handle.wait().summary())
    print(len(list(files.read_committed(OUTPUT))) < 1_500, "that numbers are missing")
    print(job.run(slots="process", resume=True).summary())
    print(sorted(files.read_committed(OUTPUT)) == list(range(1_500)), "that all numbers are there, each once")
