"""Fault points: a thread is held only at a breakpoint, and only a server on this machine is accepted."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from clonos.io.interception.answers import answered_with
from clonos.io.interception.patches import install
from clonos.io.process.fault_points import FaultPoint, FaultPointReached, FaultPoints, FaultPointsMisused, armed
from clonos_chaos.real.fault_point_server import FaultPointServer
from tests.speed import scaled

LIMIT_S = scaled(20.0)


def test_no_fault_point_is_armed_without_an_address() -> None:
    assert armed("") is None


@pytest.mark.parametrize("address", ["127.0.0.1:4000/", "127.0.0.1:4000/live,aline", "127.0.0.1:4000/live, aligned"])
def test_a_list_of_fault_points_that_names_another_one_is_refused(address: str) -> None:
    with pytest.raises(FaultPointsMisused, match=r"127\.0\.0\.1:40000/aligned,live"):
        FaultPoints(address)


def test_of_a_list_of_fault_points_only_those_are_reported() -> None:
    with FaultPointServer() as fault_point_server:
        passers = Passers(fault_point_server)
        FaultPoints(f"{fault_point_server.address}/live,aligned").reach(FaultPoint.EMISSION, "map/0")
        FaultPoints(f"{fault_point_server.address}/live,emission").reach(FaultPoint.EMISSION, "map/0")
        assert passers.seen == [HERE]


@pytest.mark.parametrize("address", ["0.0.0.0:4000", "192.0.2.1:4000", "example.org:4000", "127.0.0.1", "4000", "::"])
def test_a_fault_point_server_on_another_machine_is_refused(address: str) -> None:
    with pytest.raises(FaultPointsMisused, match="on this machine"):
        FaultPoints(address)


class Passers:
    """Records the processes that reach a fault point, and holds none of them."""

    def __init__(self, fault_point_server: FaultPointServer) -> None:
        self.seen: list[tuple[str, str, int]] = []
        fault_point_server.set_breakpoint(FaultPoint.EMISSION, where=self._look)

    def _look(self, reached: FaultPointReached) -> bool:
        self.seen.append((reached.point, reached.task, reached.pid))
        return False


HERE = (FaultPoint.EMISSION, "map/0", os.getpid())


def test_a_thread_at_a_point_without_breakpoint_is_reported_and_continues() -> None:
    with FaultPointServer() as fault_point_server:
        passers = Passers(fault_point_server)
        FaultPoints(fault_point_server.address).reach(FaultPoint.EMISSION, "map/0")
        assert passers.seen == [HERE]


def test_a_closed_fault_point_server_delays_no_thread() -> None:
    with FaultPointServer() as fault_point_server:
        passers, points = Passers(fault_point_server), FaultPoints(fault_point_server.address)
        points.reach(FaultPoint.EMISSION, "map/0")
    points.reach(FaultPoint.EMISSION, "map/0")
    assert passers.seen == [HERE]


def test_a_client_of_another_protocol_is_disconnected_from_the_fault_point_server() -> None:
    with FaultPointServer() as fault_point_server:
        host, port = fault_point_server.address.split(":")
        with socket.create_connection((host, int(port)), LIMIT_S) as stranger:
            stranger.sendall(b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f")
            assert stranger.recv(1) == b""
        passers = Passers(fault_point_server)
        FaultPoints(fault_point_server.address).reach(FaultPoint.EMISSION, "map/0")
        assert passers.seen == [HERE]


def test_the_nth_arrival_at_a_breakpoint_is_held_until_it_is_released() -> None:
    passed: list[str] = []

    def walk() -> None:
        for step in ("one", "two", "three"):
            points.reach(FaultPoint.EMISSION, "map/0", step)
            points.reach(FaultPoint.EMISSION, "map/1", step)
            points.reach(FaultPoint.ALIGNED, "map/0", step)
            passed.append(step)

    with FaultPointServer() as fault_point_server:
        points = FaultPoints(fault_point_server.address)
        pause_point = fault_point_server.set_breakpoint("emission", "map/0", nth=2)
        walker = threading.Thread(target=walk)
        walker.start()
        hit = pause_point.wait(LIMIT_S)
        assert (hit.point, hit.task, hit.detail, hit.pid) == ("emission", "map/0", "two", os.getpid())
        assert passed == ["one"]
        pause_point.release()
        walker.join(LIMIT_S)
        assert passed == ["one", "two", "three"]


def test_closing_the_fault_point_server_releases_every_thread() -> None:
    with FaultPointServer() as fault_point_server:
        pause_point = fault_point_server.set_breakpoint("emission")
        walker = threading.Thread(target=FaultPoints(fault_point_server.address).reach, args=("emission",))
        walker.start()
        pause_point.wait(LIMIT_S)
    walker.join(LIMIT_S)
    assert not walker.is_alive()


def test_a_point_inside_of_intercepted_code_has_a_connection_that_is_not_recorded() -> None:
    def refuse(*_given: object, **_named: object) -> None:
        raise AssertionError("the connection is none of the user's")

    install()
    with (
        FaultPointServer() as server,
        answered_with(dict.fromkeys(("socket.getaddrinfo", "socket.socket.connect"), refuse)),
    ):
        FaultPoints(server.address).reach(FaultPoint.CALL, "map/0")
