"""Keep a random sample of one record in ten, and count by group how many were kept.

Gives the sample and the counts, which always agree: a record is drawn once. If the process that drew it dies, its
successor draws the same, although nobody chose a seed. Another run keeps other records.

    clonos run examples/sample.py
"""

from __future__ import annotations

from clonos import Job, files, random, values

RECORDS = [{"number": number, "group": "abc"[number % 3]} for number in range(2_000)]

job = Job("sample", parallelism=2, checkpoint_every="1s")
chosen = job.source(values(RECORDS), name="records").filter(lambda record: random.random() < 0.1, name="draw")
chosen.sink(files.jsonl("out/sample"), name="sample")
chosen.key_by("group").count(name="count").sink(files.jsonl("out/sample_counts"), name="counts")
