"""Pages with the text of source files, so that a link from a document to a Python file can be read on the site."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

FOLDER = "source"
"""The pages of the site below this one are listings."""


def link_to_listings(app: Sphinx, document: nodes.document) -> None:
    """Let links to Python files, which would be downloads, lead to a page with the file's text."""
    for link in list(document.findall(addnodes.download_reference)):
        path, _ = app.env.relfn2path(link["reftarget"])
        if path.endswith(".py"):
            address = app.builder.get_relative_uri(app.env.docname, _page_of(path))
            link.replace_self(nodes.reference("", "", *link.children, refuri=address, internal=True))
            _listed(app).add(path)


def make_listings(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each file that a document links to."""
    for path in sorted(_listed(app)):
        text = (Path(app.srcdir) / path).read_text("utf-8")
        body = app.builder.highlighter.highlight_block(text, "python", linenos="inline")
        yield _page_of(path), {"title": path, "body": f"<h1>{path}</h1>{body}"}, "page.html"


def share_navigation(app: Sphinx, page: str, _: str, context: dict[str, Any], __: nodes.document | None) -> None:
    """Let all listings of one depth share a navigation tree. None of them is in it, and each tree takes 50 ms."""
    if not page.startswith(f"{FOLDER}/"):
        return
    make_tree = context["toctree"]
    trees: dict[object, str] = app.builder.__dict__.setdefault("clonos_navigation_of_listings", {})

    def tree(**options: Any) -> str:
        key = page.count("/"), *sorted(options.items())
        if key not in trees:
            trees[key] = make_tree(**options)
        return trees[key]

    context["toctree"] = tree


def _page_of(path: str) -> str:
    return f"{FOLDER}/{path.removesuffix('.py')}"


def _listed(app: Sphinx) -> set[str]:
    """Paths of the files that have a page; kept with what Sphinx remembers from one build to the next."""
    found: set[str] = app.env.__dict__.setdefault("clonos_listed_sources", set())
    return found
