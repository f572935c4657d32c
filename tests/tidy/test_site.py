"""The documents as a site: it builds without a warning, loads nothing from a network, and has every public name.

A broken link, a document outside of the navigation and a docstring that is no reStructuredText are warnings.
"""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

import clonos
import clonos.testing
from tests.tidy.source import ROOT

# The build takes 15 s of a quiet core.
pytestmark = [pytest.mark.static, pytest.mark.slow, pytest.mark.timeout(300)]

FIRST_PAGES = ("index.html", "docs/index.html", "docs/protocol.html", "docs/reference/streams.html")
LOADING = {"img": "src", "link": "href", "script": "src", "iframe": "src", "source": "src"}
"""The attribute by which an element makes a browser load something."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the command of ``make docs`` into a folder of the test's own."""
    folder = tmp_path_factory.mktemp("site")
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ndocs:")[2].partition("\n\n")[0]
    command = re.search(r"python (-m sphinx .*) \. build/site", recipe.replace("\\\n", ""))
    assert command is not None
    arguments = shlex.split(command[1].replace("build/doctrees", str(folder / "doctrees")))
    output = subprocess.run(
        [sys.executable, *arguments, ".", str(folder / "pages")],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if output.returncode:
        pytest.fail(f"make docs: {output.stdout}", pytrace=False)
    return folder / "pages"


class _Loaded(HTMLParser):
    """Addresses that a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if LOADING.get(tag) == name]


def _loaded_by(page: Path) -> list[str]:
    parser = _Loaded()
    parser.feed(page.read_text("utf-8"))
    return parser.addresses


def test_the_site_has_its_entry_pages(site: Path) -> None:
    assert [page for page in FIRST_PAGES if not (site / page).exists()] == []
    assert (site / "index.html").read_text("utf-8") == (site / "README.html").read_text("utf-8")


def test_a_page_loads_only_files_of_the_site(site: Path) -> None:
    missing = [
        f"{page.relative_to(site)}: {address}"
        for page in site.rglob("*.html")
        for address in _loaded_by(page)
        if not address.startswith("data:") and not (page.parent / re.split("[?#]", address)[0]).exists()
    ]
    styles = [
        f"{style.relative_to(site)}: {address}"
        for style in site.rglob("*.css")
        for address in re.findall(r"(?:url\(|@import )[\"']?([^\"')]*)", style.read_text("utf-8"))
        if not address.startswith("data:") and not (style.parent / address).exists()
    ]
    assert missing + styles == []


def test_only_pages_with_a_diagram_load_the_script_that_draws_it(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.parent.name != "_static"]
    drawn = {page for page in pages if '<pre class="mermaid">' in page.read_text("utf-8")}
    assert site / "README.html" in drawn
    assert {page for page in pages if any("mermaid" in address for address in _loaded_by(page))} == drawn


def test_the_reference_has_every_public_name(site: Path) -> None:
    *_, compressed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    documented = {line.partition(" ")[0] for line in zlib.decompress(compressed).decode().splitlines()}
    public = {f"{home.__name__}.{name}" for home in (clonos, clonos.testing) for name in home.__all__}
    assert sorted(public - documented) == []


def test_a_link_to_a_source_file_leads_to_its_text(site: Path) -> None:
    listed = {
        (page.parent / address).resolve()
        for page in (site / "docs").rglob("*.html")
        for address in re.findall(r'href="((?:\.\./)+source/[^"#]+)"', page.read_text("utf-8"))
    }
    assert listed, "no document links to a source file"
    for listing in listed:
        source = (ROOT / listing.relative_to(site / "source")).with_suffix(".py")
        shown = html.unescape(re.sub(r"<[^>]+>", "", listing.read_text("utf-8")))
        assert source.read_text("utf-8").splitlines()[0] in shown
