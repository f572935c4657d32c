"""Runs with credentials of an object store write them nowhere, the objects of the store and of the output included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.object_stores.objects import contents, put
from tests.connectors.secret_runs import check_absence, run_with_secret
from tests.harnesses.s3_server import S3Server

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets]

SECRET, TOKEN = "s3cret-key-of-the-bucket-4409", "t0ken-of-the-session-9214"
PROGRAM = """
job = Job("copy", store="{store}", metrics="metrics.json")
rows = job.source(files.jsonl("{given}"))
rows.sink(files.jsonl("{results}"))
"""


@pytest.mark.parametrize("bucket", ["bucket", "missing"])
def test_a_run_with_credentials_writes_them_nowhere(tmp_path: Path, s3: S3Server, bucket: str) -> None:
    put(s3, f"{bucket}-run/in/words.jsonl", b'"to"\n"be"\n')
    places = {"store": "store", "given": "in/*.jsonl", "results": "out"}
    urls = {
        name: s3.url(f"{bucket}-run/{key}").replace("s3://bucket", f"s3://{bucket}") for name, key in places.items()
    }
    run = run_with_secret(
        tmp_path, PROGRAM.format(**urls), SECRET, AWS_SECRET_ACCESS_KEY=SECRET, AWS_SESSION_TOKEN=TOKEN
    )
    objects = contents(s3, f"{bucket}-run")
    everything = run.shown.encode() + run.written + repr(objects).encode()
    check_absence(SECRET, everything)
    check_absence(TOKEN, everything)
    assert (run.code == 0) is (bucket == "bucket"), run.shown
    written = b"".join(content for key, content in objects.items() if key.startswith("out/"))
    assert sorted(written.splitlines()) == ([b'"be"', b'"to"'] if bucket == "bucket" else [])
    assert f"s3://{bucket}" in run.shown
