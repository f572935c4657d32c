"""The directives of the site: diagrams that are drawn without a network, and the API reference by public name."""

import html
import inspect
import pkgutil
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import clonos


class Mermaid(SphinxDirective):
    """A diagram as text. In the reader's browser ``static/mermaid.tiny.js`` replaces it by a drawing.

    The script is @mermaid-js/tiny 11.17.2 of the npm registry as it is there.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the text in a box, where a browser without scripts shows it."""
        text = html.escape("\n".join(self.content))
        return [nodes.raw("", f'<pre class="mermaid">\n{text}\n</pre>', format="html")]


def load_mermaid(app: Sphinx, _page: str, _template: str, _context: object, document: nodes.document | None) -> None:
    """Add the script (2.5 MB) to a page that has a diagram."""
    if document is not None and any('class="mermaid"' in raw.astext() for raw in document.findall(nodes.raw)):
        app.add_js_file("mermaid.tiny.js")
        app.add_js_file(None, body='mermaid.initialize({ theme: "neutral" });')


class PublicNames(SphinxDirective):
    """The docstrings of a module's public names, under the names by which users import them.

    The argument is the module, for instance ``clonos`` or ``clonos.clock``; each line of the content is one of its
    names. Without content all of them are meant. ``Name: a, b`` shows only these methods of a class, ``Name:`` none.
    Names are looked up as attributes, so a module may load them lazily and may take them from anywhere.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return what autodoc makes of the names."""
        path = self.arguments[0]
        module = pkgutil.resolve_name(path)
        lines = []
        if not self.content:
            lines += [f".. py:module:: {path}", f".. automodule:: {module.__name__}", "   :no-index:", ""]
        for entry in self.content or public_names(module):
            name, colon, methods = entry.partition(":")
            kind = kind_of(getattr(module, name))
            lines += [f".. auto{kind}:: {path}.{name}"]
            if kind == "class" and not colon:
                lines += ["   :members:", "   :undoc-members:", "   :inherited-members: object, str, tuple"]
            elif methods:
                lines += [f"   :members: {methods}"]
            lines += [""]
        found: list[nodes.Node] = self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))
        return found


def public_names(module: ModuleType) -> list[str]:
    """Return the names in ``__all__`` of a module, or else the names without underscore that are defined in it.

    What ``clonos`` itself offers is documented under that name only.
    """
    names: list[str] = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__
    ]
    return [name for name in names if not name.startswith("_") and name not in clonos.__all__]


def leave_out_names_of_others(_: Sphinx, _kind: str, _name: str, value: object, *_others: object) -> bool | None:
    """Tell autodoc to skip what a class has from a library, whose docstrings are not ours to check."""
    home = getattr(value, "__module__", None)
    return True if home and not home.startswith("clonos") else None


def kind_of(value: Any) -> str:
    """Return the kind of object as the directives of autodoc spell it."""
    if isinstance(value, type):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if inspect.isroutine(value) else "data"


def read_signature(
    _: Sphinx, _kind: str, _name: str, value: object, _options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Leave out the signature of a protocol, which nobody calls, and replace ``<factory>``, which is not Python."""
    if getattr(value, "_is_protocol", False):
        return "", returned
    return signature and signature.replace("<factory>", "..."), returned
