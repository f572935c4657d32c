"""Thread dumps and flame graphs as documents of the API, and as the texts that the commands print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final

from clonos_standby.driver.shown_stacks import ThreadDump
from clonos_standby.stacks import WAITING, ProcessStacks, StackSamples, ThreadStack

FLAME_S: Final = 5.0
FLAME_S_MAX: Final = 15.0
"""Seconds for which a task is sampled at most, so that clients get their answers."""

WIDTH: Final = 1200
ROW: Final = 18
CHARACTER: Final = 6.6
LEAST: Final = 0.4
TOP: Final = 40
COLORS: Final = ("#f4a259", "#f2c14e", "#e98a5b", "#f6d186", "#eaa77d")
CALM: Final = "#c3ccd9"


def dump_document(dump: ThreadDump, task: str | None = None) -> dict[str, Any]:
    """Returns a thread dump as a document. ``task``: only the threads that run the code of this task."""
    processes = [_process(each, not number, task) for number, each in enumerate(dump.processes)]
    return {
        "processes": [each for each in processes if each["threads"]],
        "silent": list(dump.silent),
    }


def _process(found: ProcessStacks, is_driver: bool, task: str | None) -> dict[str, Any]:
    threads = [_thread(each) for each in found.threads if task in (None, each.task)]
    return {"pid": found.pid, "host": found.host, "is_driver": is_driver, "threads": threads}


def _thread(found: ThreadStack) -> dict[str, Any]:
    return {
        "name": found.name,
        "task": found.task,
        "step": found.step,
        "is_waiting": found.is_waiting,
        "arguments": [{"name": name, "value": value} for name, value in found.arguments],
        "frames": list(found.frames),
    }


def dump_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of a thread dump, the innermost frame of each thread last."""
    for process in document["processes"]:
        yield f"process {process['pid']} on {process['host']}{' (driver)' if process['is_driver'] else ''}"
        for thread in process["threads"]:
            yield f"  thread {thread['name']}{_where(thread)}"
            yield from (f"    with {each['name']} = {each['value']}" for each in thread["arguments"])
            yield from (f"    {frame}" for frame in thread["frames"])
    yield from (f"silent: {each}" for each in document["silent"])


def _where(thread: Mapping[str, Any]) -> str:
    if thread["is_waiting"]:
        return ": waits for its slot"
    return f": in step {thread['step']!r}" if thread["step"] else ""


def flame_document(task: str, samples: StackSamples) -> dict[str, Any]:
    """Returns samples as a document. ``folded``: a line for each stack, as ``flamegraph.pl`` and speedscope read it."""
    lines = sorted(f"{stack} {times}" for stack, times in samples.counts.items())
    return {"task": task, "samples": samples.samples, "folded": "".join(f"{line}\n" for line in lines)}


class FlameNode:
    """Function in a flame graph, below those that called it. ``times``: samples in which it was on the stack."""

    def __init__(self, name: str) -> None:
        self.name, self.times = name, 0
        self.called: dict[str, FlameNode] = {}

    @property
    def depth(self) -> int:
        """Number of functions on the longest stack."""
        return 1 + max((each.depth for each in self.called.values()), default=0)


def flame_tree(folded: Iterable[str], name: str) -> FlameNode:
    """Returns the tree of folded stacks below a root with this name."""
    root = FlameNode(name)
    for line in folded:
        stack, _, times = line.rpartition(" ")
        node = root
        node.times += int(times)
        for function in stack.split(";"):
            node = node.called.setdefault(function, FlameNode(function))
            node.times += int(times)
    return root


def flame_svg(document: Mapping[str, Any]) -> str:
    """Returns the picture of a flame graph: a file without scripts or links, in which a title names each function.

    A function is above its caller, and as wide as its share of the samples.
    """
    root = flame_tree(document["folded"].splitlines(), document["task"])
    height = TOP + root.depth * ROW + 10
    title = escape(f"{document['task']}: {document['samples']} samples")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' font-family="monospace" font-size="11"><rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="10" y="22" font-size="14">{title}</text>'
    )
    scale = (WIDTH - 20) / max(1, root.times)
    return head + "".join(_boxes(root, 10.0, height - 10 - ROW, scale, max(1, root.times))) + "</svg>\n"


def _boxes(node: FlameNode, left: float, top: float, scale: float, total: int) -> Iterator[str]:
    width = node.times * scale
    if width < LEAST:
        return
    color = CALM if node.name == WAITING else COLORS[sum(node.name.encode()) % len(COLORS)]
    title = escape(f"{node.name}: {node.times} samples, {100 * node.times / total:.1f} %")
    room = int((width - 6) / CHARACTER)
    shown = node.name if len(node.name) <= room else f"{node.name[: max(0, room - 1)]}…"
    text = f'<text x="{left + 3:.1f}" y="{top + 12:.1f}">{escape(shown)}</text>' if room >= 3 else ""
    yield (
        f'<g><title>{title}</title><rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{ROW - 1}"'
        f' rx="2" fill="{color}"/>{text}</g>'
    )
    for each in sorted(node.called.values(), key=lambda called: called.name):
        yield from _boxes(each, left, top - ROW, scale, total)
        left += each.times * scale
