"""Thread dumps and flame graphs as texts and as pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from clonos.job.stack_documents import CALM, dump_document, dump_lines, flame_document, flame_svg, flame_tree
from clonos_standby.driver.shown_stacks import ThreadDump
from clonos_standby.stacks import WAITING, ProcessStacks, StackSamples, ThreadStack

ASK = ThreadStack("task ask/0 1.1", "ask/0", "ask", False, (("n", "7"),), ("task.py:1 in run", "job.py:3 in ask"))
READ = ThreadStack("task read/0 1.1", "read/0", "", True, (), ())
DUMP = ThreadDump(
    (ProcessStacks(1, "vm", (ThreadStack("coordinator", "", "", False, (), ()),)), ProcessStacks(2, "vm", (ASK, READ))),
    ("process 3 on vm did not answer",),
)
TREE = {"run;ask": 2, "run;ask;<b>&": 1, WAITING: 1}


def test_a_dump_as_text_has_the_innermost_line_last() -> None:
    assert list(dump_lines(dump_document(DUMP))) == [
        "process 1 on vm (driver)",
        "  thread coordinator",
        "process 2 on vm",
        "  thread task ask/0 1.1: in step 'ask'",
        "    with n = 7",
        "    task.py:1 in run",
        "    job.py:3 in ask",
        "  thread task read/0 1.1: waits for its slot",
        "silent: process 3 on vm did not answer",
    ]


def test_a_dump_of_one_task_has_its_threads_only() -> None:
    (process,) = dump_document(DUMP, "ask/0")["processes"]
    assert [thread["name"] for thread in process["threads"]] == ["task ask/0 1.1"]


def test_folded_stacks_are_lines_with_their_counts() -> None:
    assert flame_document("ask/0", StackSamples(4, TREE))["folded"] == f"{WAITING} 1\nrun;ask 2\nrun;ask;<b>& 1\n"


def test_a_function_counts_for_those_that_called_it() -> None:
    root = flame_tree(["run;ask 2", "run;ask;get 1", "wait 1"], "ask/0")
    assert (root.times, root.called["run"].times, root.called["run"].called["ask"].times) == (4, 3, 3)
    assert root.depth == 4


def _picture() -> Any:
    return ET.fromstring(flame_svg(flame_document("ask/0", StackSamples(4, TREE))))


def test_a_picture_names_each_function_with_its_share() -> None:
    titles = [title.text for title in _picture().iter("{http://www.w3.org/2000/svg}title")]
    assert "run: 3 samples, 75.0 %" in titles
    assert "<b>&: 1 samples, 25.0 %" in titles


def test_a_function_is_as_wide_as_its_share_and_above_its_caller() -> None:
    boxes = {
        group[0].text.partition(":")[0]: group[1].attrib for group in _picture().iter("{http://www.w3.org/2000/svg}g")
    }
    assert float(boxes["run"]["width"]) == 3 * float(boxes["<b>&"]["width"])
    assert float(boxes["ask"]["y"]) < float(boxes["run"]["y"]) < float(boxes["ask/0"]["y"])
    assert boxes[WAITING]["fill"] == CALM
