"""Decoders for classes: threads that ask for the first one of a class at once get the same, and crash nothing."""

from __future__ import annotations

import subprocess
import sys

from tests.tidy.source import ROOT

PROGRAM = """
import sys, threading
from typing import Literal
import msgspec
from clonos.io.system.json_decoders import decoder_of

sys.setswitchinterval(1e-6)
for number in range(100):
    inner = msgspec.defstruct("Inner", [("a", int), ("b", str)])
    choice = ("choice", Literal["a", "b"] | msgspec.UnsetType, msgspec.UNSET)
    rest = [(f"x{n}", list[int] | None, None) for n in range(30)]
    outer = msgspec.defstruct("Outer", [("inner", inner | None), choice, *rest], kw_only=True)
    barrier, found = threading.Barrier(12), []

    def decode():
        barrier.wait()
        found.append(decoder_of(outer).decode('{"inner": {"a": 1, "b": "x"}}').inner.a)

    threads = [threading.Thread(target=decode) for _ in range(12)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [1] * 12, found
print("decoded")
"""


def test_threads_that_decode_a_new_class_at_once_do_not_crash() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=ROOT, timeout=120
    )
    assert (ended.returncode, ended.stdout) == (0, "decoded\n"), ended.stderr
