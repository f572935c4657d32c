"""The page about plans shows what ``clonos explain`` prints; --rewrite-traces writes it anew."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from clonos.cli import main

DOCUMENT = Path(__file__).parents[3] / "docs" / "plan.md"


def _block(document: str, fence: str) -> str:
    found = re.search(rf"^```{fence}\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    assert found is not None, fence
    return found[1]


@pytest.mark.parametrize(("format_", "fence"), [("text", "text visits.txt"), ("mermaid", "mermaid")])
def test_the_page_shows_the_plan_of_its_example(
    format_: str,
    fence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    document = DOCUMENT.read_text("utf-8")
    (tmp_path / "visits.py").write_text(_block(document, "python visits.py"), "utf-8")
    (tmp_path / "visits").mkdir()
    (tmp_path / "visits" / "monday.jsonl").write_text('{"user": "ann", "at": 0}\n', "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "visits", raising=False)
    assert main(["explain", "visits.py", "--format", format_]) == 0
    printed = capsys.readouterr().out
    if request.config.getoption("--rewrite-traces"):
        document = document.replace(f"```{fence}\n{_block(document, fence)}```", f"```{fence}\n{printed}```")
        DOCUMENT.write_text(document, "utf-8")
    assert _block(document, fence) == printed
    sys.modules.pop("visits", None)
