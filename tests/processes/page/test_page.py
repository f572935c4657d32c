"""The page of a job in a real Chromium: kills, stops, hostile texts, narrow windows, accessibility."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.processes.page.conftest import Tab
from tests.processes.page.hostile_source import LONG, SCRIPT, TOKEN, hostile_page
from tests.processes.page.paged_job import LIMIT_S, PagedJob, paged_job

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]

KILLS_MAX = 3
SECOND_MS = 1_000
NUMBERS = 300
NUMBERS_FIRST = 100
KILL = 'tr[data-task="count-row/0"] button.is-danger'
PLACES = (
    ".alarms li",
    ".recovery .what",
    "tr[data-task]",
    ".properties dd",
    ".properties dt",
    "svg title",
    ".history title",
    ".events .text",
)
LATENCY = 'section[aria-labelledby="panel-latency"] header p'
HISTORY = 'section[aria-labelledby="panel-history"] header p'
TASK = 'section[aria-labelledby="panel-task"]'
METRICS = 'section[aria-labelledby="panel-metrics-of-your-code"] tbody tr'
SCRIPTS = "return [...document.querySelectorAll('script')].map(each => each.src.split('/').pop())"
IMAGES = "return [...document.images].map(each => each.src.split('/').pop())"

MARKS = """
const canvas = document.querySelector(".plot canvas");
const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
let red = 0;
for (let at = 0; at < pixels.length; at += 4) red += pixels[at] > 200 && pixels[at + 1] < 80 && pixels[at + 2] < 110;
return [red];
"""
"""Pixels of the first plot in the colour of recoveries."""

NOTE_RECOVERIES = """
window.shown = [];
new MutationObserver((changes) => {
  for (const change of changes)
    for (const added of change.addedNodes)
      if (added.matches?.(".recovery")) window.shown.push([added.dataset.task, Date.now()]);
}).observe(document.querySelector(".recoveries"), { childList: true });
"""


def _is_whole(document: Any) -> bool:
    """Whether all tasks are live and have standbys."""
    has_tasks = bool(document["tasks"]) and document["job"]["checkpoint"] > 0
    return has_tasks and all(task["phase"] == "live" and task["standbys"] for task in document["tasks"])


def test_a_task_killed_on_the_page_recovers_there_within_a_second_and_a_stop_loses_nothing(
    tmp_path: Path, tab: Tab
) -> None:
    with paged_job(tmp_path, allow_injection=True) as job:
        job.gate.open_to(NUMBERS_FIRST)
        tab.open(job.url)
        tab.one(KILL)
        tab.run(NOTE_RECOVERIES)
        delays_ms = [_kill(job, tab, 1)]
        while min(delays_ms) >= SECOND_MS and len(delays_ms) < KILLS_MAX:  # a machine under load
            delays_ms.append(_kill(job, tab, len(delays_ms) + 1))
        assert min(delays_ms) < SECOND_MS
        recovery = tab.one('.recovery[data-task="count-row/0"]')
        tab.until(lambda: "live in" in recovery.text, "when the task was live again")
        tab.until(lambda: "the other 2 tasks kept their processes" in recovery.text, "that the others did not notice")
        tab.until(lambda: "Recoveries1" in tab.texts(".figures div")[3].replace(" ", ""), "the number of recoveries")
        (document,) = job.ask("/recoveries")["recoveries"]
        took = f"live in {document['duration_ms']:.0f} ms"
        tab.until(lambda: took in recovery.text, f"one duration for one recovery: {took}")
        tab.until(lambda: tab.run(MARKS)[0], "a mark of the recovery in the curves")
        (line,) = tab.until(lambda: [text for text in tab.texts(".log li") if "recovered in" in text], "its line")
        assert line.count("count-row/0") == 1
        tab.until(lambda: any("count-row/0 recovered" in text for text in tab.texts("#announcer")), "the spoken words")
        numbers = iter(range(NUMBERS_FIRST, NUMBERS))

        def has_latency() -> bool:
            job.gate.open_to(next(numbers, NUMBERS))  # latencies are measured by marks that ride with records
            return any(text.startswith("median ") for text in tab.texts(LATENCY))

        tab.until(has_latency, "the curve of the latency")
        job.gate.open_to(NUMBERS)
        _press_stop(tab)
        assert job.handle.wait(LIMIT_S).checkpoint
        tab.until(lambda: "FINISHED" in tab.one(".badge").text, "the end of the job")
        even, odd = (sum(len(range(key, 2 * NUMBERS, 7)) for key in range(7) if key % 2 == parity) for parity in (0, 1))
        rows = [f"rows_madeparity=evencounter{even:,}", f"rows_madeparity=oddcounter{odd:,}"]
        tab.until(lambda: tab.texts(METRICS) == rows, "the metrics of the job, each row once")
        assert tab.errors() == []
    expected = [(key, count) for key in range(7) for count in range(1, len(range(key, 2 * NUMBERS, 7)) + 1)]
    assert sorted((row["key"], row["count"]) for row in job.rows()) == expected


def _kill(job: PagedJob, tab: Tab, number: int) -> float:
    """Kills the task; returns the milliseconds from the first milestone of its recovery until the page shows it."""

    def ended() -> Any:
        return [each for each in job.ask("/recoveries")["recoveries"] if each["number"] == number and each["is_over"]]

    tab.until(lambda: _is_whole(job.ask("/status")), "standbys of all tasks")
    tab.one(KILL).click()
    task, shown_ms = tab.until(lambda: tab.run("return window.shown[arguments[0]]", number - 1), "the recovery")
    assert task == "count-row/0"
    noticed_at = tab.until(ended, "the end of the recovery")[0]["phases"][0]["at"]
    return float(shown_ms - tab.run("return +new Date(arguments[0])", noticed_at))


def _press_stop(tab: Tab) -> None:
    """Stops the job with the keyboard alone, and goes back once before."""
    stop = next(each for each in tab.all(".head button") if each.text == "Stop")
    for answer in (Keys.ESCAPE, Keys.ENTER):
        tab.run("arguments[0].focus()", stop)
        stop.send_keys(Keys.ENTER)
        tab.one("dialog")
        confirm = tab.one("dialog button[type=submit]")
        if answer == Keys.ENTER:
            tab.run("arguments[0].focus()", confirm)
        tab.driver.switch_to.active_element.send_keys(answer)
        tab.until(lambda: not tab.all("dialog"), "the end of the dialog")


def test_tasks_are_placed_again_from_the_form_of_the_page_with_and_without_other_numbers(
    tmp_path: Path, tab: Tab
) -> None:
    with paged_job(tmp_path) as job:
        job.gate.open_to(NUMBERS_FIRST)
        tab.open(job.url)
        tab.one('tr[data-task="count-row/0"]')
        _rescale(tab)
        first = _until_changed(job, tab, 0)
        assert not tab.all('tr[data-task="count-row/1"]')
        _rescale(tab, tasks="2")
        _until_changed(job, tab, first)
        tab.one('tr[data-task="count-row/1"]')
        job.gate.end(NUMBERS)
        assert job.handle.wait(LIMIT_S).has_finished
    assert len(job.rows()) == 2 * NUMBERS


def _rescale(tab: Tab, tasks: str = "") -> None:
    next(each for each in tab.all(".head button") if each.text == "Rescale").click()
    tab.one("#field-place").click()
    if tasks:
        labels = [each.text for each in tab.all("dialog label")]
        number = next(at for at, text in enumerate(labels) if "count" in text)
        tab.one(f"#field-width-{number}").send_keys(tasks)
    tab.one("dialog button[type=submit]").click()
    tab.until(lambda: not tab.all("dialog"), "the end of the dialog")


def _until_changed(job: PagedJob, tab: Tab, before: int) -> int:
    """Returns the number of the request, which is higher than that of the one before."""

    def done() -> int | None:
        found = job.ask("/status")["rescale"]
        is_done = bool(found) and found["number"] > before and found["phase"] == "done"
        return found["number"] if is_done else None

    return tab.until(done, "the end of the change")


def test_a_click_on_a_task_shows_what_is_known_of_it_and_one_on_an_arrow_its_rows(tmp_path: Path, tab: Tab) -> None:
    with paged_job(tmp_path) as job:
        tab.open(job.url)
        tab.one('tr[data-task="count-row/0"] button.link').click()
        numbers = iter(range(NUMBERS_FIRST, 100_000))

        def shows_state() -> bool:
            job.gate.open_to(next(numbers))
            properties = dict(zip(tab.texts(f"{TASK} dt"), tab.texts(f"{TASK} dd"), strict=True))
            return properties["steps"] == "count, row, sink" and properties["state"].startswith("about ")

        tab.until(shows_state, "the state of the task")
        label = tab.one(".graph .label")
        tab.driver.execute_script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", label)

        def shows_rows() -> list[str]:
            job.gate.open_to(next(numbers))
            return tab.texts(".rows li")

        rows = tab.until(shows_rows, "rows of the arrow")
        assert all(0 <= int(row) < 100_000 for row in rows)
        assert len(rows) <= 5
        tab.one(f"{TASK} button:last-child").click()
        tab.until(lambda: not tab.all(TASK)[0].is_displayed(), "that the task is closed")
        assert tab.errors() == []
        job.handle.stop()


def test_a_part_of_the_curves_that_is_chosen_is_shown_in_all_of_them_until_one_goes_back(tab: Tab) -> None:
    with hostile_page() as url:
        tab.open(url)
        tab.until(lambda: len(tab.all(".plot canvas")) >= 2, "the curves")
        assert tab.texts('.span button[aria-pressed="true"]') == ["10 min"]
        tab.run("arguments[0].scrollIntoView({block: 'center'})", tab.one(".plot"))
        drag = ActionChains(tab.driver).move_to_element(tab.one(".plot .u-over")).click_and_hold()
        drag.move_by_offset(60, 0).release().perform()
        back = tab.until(
            lambda: next((b for b in tab.all(".span button") if b.text == "Back to now"), None), "the zoom"
        )
        assert tab.texts('.span button[aria-pressed="true"]') == []
        back.click()
        assert tab.texts('.span button[aria-pressed="true"]') == ["10 min"]
        ActionChains(tab.driver).move_to_element(tab.one(".plot .u-over")).perform()
        tab.until(lambda: " · " in tab.texts(".pair header p")[0], "the values under the pointer")
        assert tab.errors() == []


@pytest.mark.parametrize("error", [None, f"{SCRIPT}\n{LONG}"])
def test_texts_of_a_job_stay_texts_and_need_no_sideways_scrolling(tab: Tab, error: str | None) -> None:
    with hostile_page(error) as url:
        tab.open(url, width=400, height=800)
        tab.until(lambda: any(SCRIPT in text for text in tab.texts("h1")), "the name of the job")
        tab.until(lambda: any(SCRIPT in text for text in tab.texts(".log li")), "the lines of the log")
        tab.until(lambda: len(tab.all(".recovery")) == 2, "the recoveries")
        for selector in PLACES:
            assert any(SCRIPT in text for text in tab.texts(selector)), selector
        if error is not None:
            assert any(SCRIPT in text for text in tab.texts(".notice pre"))
            tab.until(lambda: not tab.all(".is-growing, .is-recovering"), "that nothing is shown as in progress")
            assert set(tab.texts("tr[data-task] .badge")) == {"ended"}
            assert tab.texts(".savepoints .text") == tab.texts(".load li") == []
        if error is None:
            assert any(SCRIPT in text for text in tab.texts(".savepoints .text"))
            assert any(text.startswith(f"{SCRIPT}: 2 tasks to 4: ") for text in tab.texts(".load li"))
            tab.one("#peek-arrow + button").click()
            tab.until(lambda: SCRIPT in tab.texts(".rows li"), "the rows of the arrow")
        assert tab.run("return window.taken") is None
        assert tab.run("return [...document.querySelectorAll('script')].map(each => each.src.split('/').pop())") == [
            "app.js"
        ]
        assert tab.run(IMAGES) == ["icon.svg"]
        for width in (400, 1000):
            tab.resize(width)
            assert tab.run("return document.documentElement.scrollWidth") <= width


def test_the_page_shows_how_much_of_a_savepoint_is_written(tab: Tab) -> None:
    with hostile_page() as url:
        tab.open(url)
        bar = tab.one(".savepoints progress")
        assert (bar.get_attribute("value"), bar.get_attribute("max")) == ("3", "10")
        assert tab.one(".savepoints .text").text.endswith(": 3 of 10 objects")


def test_the_history_has_a_row_for_each_event_and_shows_a_chosen_length(tab: Tab) -> None:
    with hostile_page() as url:
        tab.open(url)
        tab.until(lambda: len(tab.all(".history .mark")) == 4, "the marks of the timeline")
        assert [text.split(" ")[0] for text in tab.texts(".events .kind")] == ["alarm", "alarm", "recovery", "start"]
        assert "1 start of a driver, 0 failures" in str(tab.one(".history").get_attribute("aria-label"))
        group = '[aria-label="Length of the timeline"] button'
        tab.run("arguments[0].focus()", tab.all(group)[-1])
        tab.driver.switch_to.active_element.send_keys(Keys.ENTER)
        assert tab.texts(f'{group}[aria-pressed="true"]') == ["1 min"]
        tab.until(lambda: " in 1 min 0 s" in tab.texts(HISTORY)[0], "the length of the timeline")
        assert tab.errors() == []


KEY = 'section[aria-labelledby="panel-key"]'


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_the_course_of_a_key_is_texts_that_the_keyboard_reaches(tab: Tab, scheme: str, width: int) -> None:
    with hostile_page() as url:
        tab.open(url, width=width, scheme=scheme)
        tab.one("#key-key").send_keys("17", Keys.ENTER)
        tab.until(lambda: len(tab.all(".passage")) == 3, "the passages of the key")
        assert tab.texts(".calls .message p")[1:3] == [SCRIPT, f"{SCRIPT}\n-> {LONG}"]
        assert "9 + 0 tokens" in tab.texts(f"{KEY} > p")[0]
        assert f"awaits the event {SCRIPT}" in tab.texts(".passage .badge")
        for summary in tab.all(f"{KEY} summary"):
            summary.send_keys(Keys.ENTER)
        assert tab.violations() == []
        assert tab.run("return window.taken") is None
        assert tab.run("return document.documentElement.scrollWidth") <= width
        assert tab.errors() == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_threads_and_flame_graph_of_a_task_are_texts_that_the_keyboard_reaches(
    tab: Tab, scheme: str, width: int
) -> None:
    with hostile_page() as url:
        tab.open(url, width=width, scheme=scheme)
        tab.one("button.link").click()
        buttons = {each.text: each for each in tab.all(f"{TASK} .toolbar button")}
        buttons["Threads"].send_keys(Keys.ENTER)
        tab.until(lambda: tab.texts(".frames li") == [SCRIPT, LONG], "the stack")
        assert tab.texts(".stacks dd") == [SCRIPT]
        assert tab.violations() == []
        buttons["Flame graph"].send_keys(Keys.ENTER)
        tab.until(lambda: len(tab.all(".flame g")) == 4, "the boxes of the graph")
        shares = tab.texts(".flame title")
        assert any(text == f"{SCRIPT}: 3 samples, 75 %" for text in shares), shares
        before = tab.run("return document.querySelectorAll('.flame g > rect')[2].getBoundingClientRect().width")
        tab.run("document.querySelectorAll('.flame g')[2].focus()")
        tab.driver.switch_to.active_element.send_keys(Keys.ENTER)
        chosen = "return document.querySelector('.flame [data-chosen] > rect').getBoundingClientRect().width"
        tab.until(lambda: tab.run(chosen) > before, "the chosen function")
        assert tab.violations() == []
        assert tab.run("return window.taken") is None
        assert tab.run("return document.documentElement.scrollWidth") <= width
        assert tab.errors() == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_axe_finds_no_serious_violation(tab: Tab, scheme: str, width: int) -> None:
    with hostile_page() as url:
        tab.open(url, width=width, scheme=scheme)
        tab.until(lambda: len(tab.all(".recovery")) == 2 and tab.all(".log li"), "the page")
        for opened in (*tab.all("summary"), tab.one("button.link"), tab.one("#peek-arrow + button")):
            opened.click()
        tab.until(lambda: len(tab.all(".rows li")) == 2, "the rows of the arrow")
        assert tab.violations() == []
        tab.one(".head button").click()
        tab.one("dialog")
        assert tab.violations() == []


def test_the_page_asks_for_the_token_and_removes_it_from_the_address(tab: Tab) -> None:
    with hostile_page() as url:
        tab.open(url.partition("#")[0])
        tab.one("dialog input[type=password]").send_keys("wrong", Keys.ENTER)
        tab.until(lambda: not tab.one("dialog input[type=password]").get_attribute("value"), "the second question")
        tab.one("dialog input[type=password]").send_keys(TOKEN, Keys.ENTER)
        tab.until(lambda: any(SCRIPT in text for text in tab.texts("h1")), "the job")
        tab.open(url)
        tab.until(lambda: any(SCRIPT in text for text in tab.texts("h1")), "the job")
        assert TOKEN not in tab.run("return location.href")
