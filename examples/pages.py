"""Make a page of HTML of each text, a file for a file: a page is there whole and once, or not yet.

clonos run examples/pages.py
ls out/pages
"""

from __future__ import annotations

import html
from pathlib import Path

from clonos import Job, files

TEXTS = Path(__file__).with_name("data") / "texts"


def page(file: tuple[str, str]) -> tuple[str, str]:
    """Returns the name of the page of a text, and its content."""
    path, text = file
    title = Path(path).stem
    return f"{title}.html", f"<title>{html.escape(title)}</title>\n<pre>{html.escape(text)}</pre>\n"


job = Job("pages", parallelism=2, checkpoint_every="1s")
texts = job.source(files.whole(TEXTS, encoding="utf-8"), name="texts")
texts.map(page, name="page").sink(files.whole("out/pages"), name="output")
