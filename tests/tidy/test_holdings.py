"""The check for leftovers of a test finds threads, sockets, children and orphans."""

import os
import signal
import socket
import subprocess
import sys
import threading

from tests.holdings import Holdings, left_behind, orphans_of_this_run

WAIT = "import sys; sys.stdin.read()"


def test_a_test_that_does_nothing_leaves_nothing_behind() -> None:
    assert left_behind(Holdings.now(), grace_s=0) == []


def test_a_thread_that_keeps_running_is_named() -> None:
    before = Holdings.now()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="forgotten")
    thread.start()
    try:
        assert left_behind(before, grace_s=0) == ["thread 'forgotten' still runs"]
    finally:
        stop.set()
        thread.join()


def test_a_thread_that_is_about_to_end_is_waited_for() -> None:
    before = Holdings.now()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    stop.set()
    assert left_behind(before) == []


def test_a_socket_that_stays_open_is_counted_unless_a_pool_may_keep_it() -> None:
    before = Holdings.now()
    with socket.socket():
        (complaint,) = left_behind(before, grace_s=0)
        assert "1 sockets are still open" in complaint
        assert left_behind(before, sockets_count=False, grace_s=0) == []


def test_a_socket_that_is_about_to_close_is_waited_for() -> None:
    before = Holdings.now()
    open_socket = socket.socket()
    closing = threading.Timer(0.05, open_socket.close)
    closing.start()
    assert left_behind(before, unnamed_threads_count=False) == []
    closing.join()


def test_a_child_that_keeps_running_is_named_and_killed() -> None:
    before = Holdings.now()
    with subprocess.Popen([sys.executable, "-c", WAIT], stdin=subprocess.PIPE) as child:
        (complaint,) = left_behind(before, grace_s=0)
        assert f"process {child.pid} still runs" in complaint
        child.wait()
        assert Holdings.now().processes == before.processes


def test_an_orphan_is_found_by_the_run_that_it_belongs_to_and_killed() -> None:
    parent_that_dies = (
        "import os, subprocess, sys;"
        f"child = subprocess.Popen([sys.executable, '-c', {WAIT!r}], stdin=0, stdout=subprocess.DEVNULL);"
        "print(child.pid, flush=True); os._exit(0)"
    )
    reading, writing = os.pipe()
    try:
        born = subprocess.run(
            [sys.executable, "-c", parent_that_dies], stdin=reading, stdout=subprocess.PIPE, check=True
        )
        (complaint,) = orphans_of_this_run(grace_s=0)
        assert f"process {int(born.stdout)} still runs" in complaint
        assert orphans_of_this_run(grace_s=0) == []
    finally:
        os.close(reading)
        os.close(writing)


def test_a_child_that_was_killed_and_reaped_is_not_reported() -> None:
    before = Holdings.now()
    with subprocess.Popen([sys.executable, "-c", WAIT], stdin=subprocess.PIPE) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert left_behind(before) == []
