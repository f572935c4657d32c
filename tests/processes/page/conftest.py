"""The browser that the tests of the page share, and a tab of it for each test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.connectors.servers.chromium import programs
from tests.speed import scaled

LIMIT_S = scaled(30.0)
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
AXE = Path(__file__).parent / "axe" / "axe.min.js"
Found = TypeVar("Found")


class Tab:
    """A tab with a page. Elements are named by selectors of CSS."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Opens a page in a window of this size, light or dark."""
        self.resize(width, height)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get("about:blank")
        self.driver.get(url)

    def resize(self, width: int, height: int = 900) -> None:
        """Gives the window another size."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def all(self, selector: str) -> list[WebElement]:
        """All elements of a selector, now."""
        found: list[WebElement] = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found

    def texts(self, selector: str) -> list[str]:
        """Texts of all elements of a selector, also of those out of sight."""
        script = "return [...document.querySelectorAll(arguments[0])].map(each => each.textContent)"
        found: list[str] = self.driver.execute_script(script, selector)
        return found

    def run(self, script: str, *arguments: object) -> Any:
        """The result of a script in the page."""
        return self.driver.execute_script(script, *arguments)

    def until(self, look: Callable[[], Found | None], what: str) -> Found:
        """Waits until `look` finds something."""
        deadline_s = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline_s:
            try:
                if found := look():
                    return found
            except StaleElementReferenceException:
                pass
        raise AssertionError(f"not seen in {LIMIT_S:.0f} s: {what}\n{self.texts('body')[0][:2000]}")

    def one(self, selector: str) -> WebElement:
        """Waits for an element that is shown."""
        return self.until(lambda: next((e for e in self.all(selector) if e.is_displayed()), None), selector)

    def violations(self) -> list[str]:
        """Violations of accessibility that axe calls serious or critical."""
        self.run(AXE.read_text("utf-8"))
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then(result => done(result.violations))"
        )
        return [
            f"{each['id']} ({each['impact']}): {each['help']}: {[node['html'][:120] for node in each['nodes'][:3]]}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]

    def errors(self) -> list[str]:
        """Errors in the log of the browser since the last look."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="session")
def shared_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Chromium."""
    browser, driver = programs()
    options = Options()
    options.binary_location = browser
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    found.set_script_timeout(LIMIT_S)
    try:
        yield found
    finally:
        found.quit()


@pytest.fixture
def tab(shared_browser: Any) -> Iterator[Tab]:
    """A new tab, without anything of earlier ones."""
    shared_browser.switch_to.new_window("tab")
    own = Tab(shared_browser)
    own.errors()
    yield own
    shared_browser.close()
    shared_browser.switch_to.window(shared_browser.window_handles[0])
