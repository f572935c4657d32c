"""The page of a server in a real Chromium: a job is submitted, killed at and stopped there, and its driver dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.processes.harness.running_server import (
    TOKEN,
    RunningServer,
    add_words,
    expected_counts,
    running_server,
    word_count_file,
)
from tests.processes.page.conftest import Tab

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]

TEXTS = ("a b a\n" * 20, "c a\n" * 30)
BADGE = ".head .badge"


def _submit(tab: Tab, file: Path) -> None:
    """Submits a job by the form."""
    tab.one(".panel button.is-main").click()
    tab.one("dialog")
    tab.one("#field-job").send_keys(str(file))
    tab.one("#field-options").send_keys("checkpoint_every=300ms spare_slots=2", Keys.ENTER)
    tab.until(lambda: not tab.all("dialog"), "the end of the form")


def _has_ended(server: RunningServer, job_id: str) -> list[Any]:
    found = server.client.get(f"/jobs/{job_id}/recoveries")["recoveries"]
    return [each for each in found if each["task"] == "count-row/0" and each["is_over"]]


def test_a_job_submitted_on_the_page_loses_nothing_when_a_task_and_its_driver_die_there(
    tmp_path: Path, tab: Tab
) -> None:
    file = word_count_file(tmp_path, injection=True)
    add_words(tmp_path, "one.txt", TEXTS[0])
    with running_server(tmp_path) as server:
        tab.open(f"{server.url}/#token={TOKEN}")
        _submit(tab, file)
        link = tab.one("tr td:first-child a")
        job_id = server.client.get("/jobs")["jobs"][0]["id"]
        assert link.text == "words"
        server.wait_for_status(job_id, "RUNNING")
        link.click()
        tab.one('tr[data-task="count-row/0"] button.is-danger')
        assert "checkpoint_every" in "".join(tab.texts(".properties dt"))
        tab.until(lambda: "spare" in "".join(tab.texts(".panel header p")), "the spare processes")
        tab.one('tr[data-task="count-row/0"] button.is-danger').click()
        tab.one('.recovery[data-task="count-row/0"]')
        tab.until(lambda: _has_ended(server, job_id), "the end of the recovery")
        # The page stays, and says so, while the driver is dead and starts again.
        driver = server.driver(job_id)
        os.kill(driver.pid, signal.SIGKILL)
        add_words(tmp_path, "two.txt", TEXTS[1])
        tab.until(lambda: server.driver(job_id).pid != driver.pid, "another driver")
        server.wait_for_status(job_id, "RUNNING")
        tab.until(lambda: tab.one(".connection").text == "live", "events of the other driver")
        tab.until(lambda: sum(server.counts(job_id).values()) == len(expected_counts(*TEXTS)), "all output")
        stop = tab.until(lambda: [each for each in tab.all(".head button") if each.text == "Stop"], "the button")[0]
        stop.click()
        tab.one("dialog").find_element(By.CSS_SELECTOR, "button[type=submit]").click()
        server.wait_for_status(job_id, "FINISHED")
        tab.until(lambda: "FINISHED" in tab.one(BADGE).text, "the end of the job")
        tab.one(".brand").click()
        tab.until(lambda: "FINISHED" in "".join(tab.texts("tbody .badge")), "the list of jobs")
        assert tab.violations() == []
        assert server.counts(job_id) == expected_counts(*TEXTS)
