"""Programs of the pages of docs/connectors, written to a folder as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy.source import ROOT


def write_programs(folder: Path, page: str, **replaced: tuple[str, str]) -> None:
    """Writes all named programs of a page, with its address of a server, ``replaced["address"]``, and other texts.

    A key of ``replaced`` other than ``address`` is the name of the program, without ``.py``, in which it is replaced.
    """
    text = (ROOT / "docs" / "connectors" / f"{page}.md").read_text("utf-8")
    for name, program in re.findall(r"^```python (\w+)\.py\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for old, new in (replaced["address"], *([replaced[name]] if name in replaced else [])):
            assert old in program, f"{name}.py of {page}.md has no {old}"
            program = program.replace(old, new)
        (folder / f"{name}.py").write_text(program, "utf-8")
