"""The browser of the tests of the page: Debian's packages of Chromium and of its driver."""

from __future__ import annotations

import shutil

from tests.connectors.servers.fetch import BrokerMissing, install

NAME = "Chromium"
BROWSER, DRIVER = "chromium", "chromedriver"


def is_there() -> bool:
    """Whether both programs are installed."""
    return shutil.which(BROWSER) is not None and shutil.which(DRIVER) is not None


def fetch() -> None:
    """Installs Debian's packages; the driver brings the browser."""
    install("chromium-driver", "The tests of the page run in Chromium")


def programs() -> tuple[str, str]:
    """Paths of the browser and of its driver. Raises: BrokerMissing."""
    browser, driver = shutil.which(BROWSER), shutil.which(DRIVER)
    if browser is None or driver is None:
        raise BrokerMissing(NAME)
    return browser, driver
