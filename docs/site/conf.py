"""How Sphinx builds the site: which pages it has, in which order, and how they look.

The source folder is the root of the project, so a link leads to the same file on the site and in the repository.
Nothing is fetched from the network, neither by the build nor by a reader's browser.
"""

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

import clonos

sys.path.insert(0, str(Path(__file__).parent))

from directives import Mermaid, PublicNames, leave_out_names_of_others, load_mermaid, read_signature
from listings import link_to_listings, make_listings, share_navigation

NAVIGATION = {
    "Getting started": [
        "Overview <self>",
        "docs/quick-start",
        "docs/tutorial",
        "examples/README",
        "docs/transformations",
        "docs/plan",
        "docs/coming-from",
        "All documents <docs/index>",
        "CHANGELOG",
    ],
    "Concepts": [
        "docs/order",
        "docs/determinism",
        "docs/event-time",
        "docs/windows",
        "docs/joins",
        "docs/state",
        "docs/aggregates",
        "docs/columns",
        "Failure model <docs/failure-model>",
        "docs/services",
        "docs/ai",
    ],
    "Connectors": [
        "docs/connectors",
        "docs/connectors/*",
        "docs/codecs",
        "docs/writing-a-source",
        "docs/writing-a-sink",
    ],
    "Testing": ["docs/testing", "docs/debugging"],
    "Operations": [
        "docs/options",
        "docs/operations",
        "docs/savepoints",
        "docs/scaling",
        "docs/history",
        "docs/metrics",
        "docs/telemetry",
        "docs/server",
        "docs/deployment",
        "docs/console",
        "docs/troubleshooting",
        "docs/security",
        "docs/chaos",
    ],
    "Internals": [
        "docs/architecture",
        "docs/protocol",
        "docs/replay",
        "docs/glossary",
        "docs/design/*",
        "docs/performance",
        "benchmarks/results/*",
        "docs/seeds",
    ],
    "API reference": [
        "Jobs and streams <docs/reference/streams>",
        "Causal services <docs/reference/services>",
        "Sources and sinks <docs/reference/connectors>",
        "Connector contract <docs/reference/connector-contract>",
        "Errors <docs/reference/errors>",
        "clonos.testing <docs/reference/testing>",
    ],
}
"""The sidebar: the pages under each heading. The build fails for a document that is in none of them."""

project = "Clonos"
version = release = clonos.__version__
project_copyright = "the authors of Clonos, Apache License 2.0"
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "examples/*.md", "benchmarks/results/*.md"]
exclude_patterns = [".*", "build", "docs/site"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

myst_heading_anchors = 6
myst_heading_anchors_html_ids = True
myst_fence_as_directive = ["mermaid"]

default_role = "code"
smartquotes = False
napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_docstring_signature = False
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 140
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Clonos {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}


def add_navigation(_: Sphinx, page: str, text: list[str]) -> None:
    """Append the sidebar's entries to the root document, where Sphinx looks for them."""
    if page == root_doc:
        for heading, entries in NAVIGATION.items():
            lines = [f":caption: {heading}", ":hidden:", ":glob:", "", *entries]
            text[0] += "\n```{toctree}\n" + "\n".join(lines) + "\n```\n"


def name_the_first_page(app: Sphinx, error: Exception | None) -> None:
    """Copy the root document to index.html, the page that a web server and GitHub Pages show first."""
    if error is None:
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Register the directives and the events above."""
    app.add_directive("mermaid", Mermaid)
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-skip-member", leave_out_names_of_others)
    app.connect("autodoc-process-signature", read_signature)
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", link_to_listings, priority=400)  # before Sphinx copies what is to be downloaded
    app.connect("html-collect-pages", make_listings)
    app.connect("html-page-context", share_navigation, priority=400)  # before the theme makes the tree
    app.connect("html-page-context", load_mermaid)
    app.connect("build-finished", name_the_first_page)
