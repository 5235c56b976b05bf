"""The pages of `docs/` are run: every block of Python, in the order of its page, in one module, against real servers."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from django.conf import settings

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?P<target>[^)#:]+\.md)(?:#[^)]*)?\)")
PAGES = sorted((ROOT / "docs").glob("**/*.md"))


def _blocks(page: Path) -> Iterator[str]:
    """The blocks, each moved down to its line of the page, so that a traceback names it."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        yield "\n" * text.count("\n", 0, found.start("code")) + found["code"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("reactor_dispatches")
@pytest.mark.parametrize("page", [page for page in PAGES if any(_blocks(page))], ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(
    page: Path, monkeypatch: pytest.MonkeyPatch, reactor_settings: Callable[..., None]
) -> None:
    """Reactors are found by their dotted name, so the page is a module that can be imported while it runs."""
    module = ModuleType(f"docs_{page.stem.replace('-', '_')}")
    module.__dict__["DATABASES"] = copy.deepcopy(dict(settings.DATABASES))  # a page may show what to add to settings
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in _blocks(page):
        exec(compile(block, str(page.relative_to(ROOT)), "exec"), module.__dict__)


def test_the_page_of_coordination_has_examples() -> None:
    assert len(list(_blocks(ROOT / "docs" / "coordination.md"))) >= 12


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for found in LINK.finditer(page.read_text(encoding="utf-8")):
        assert (page.parent / found["target"]).exists(), f"{page.name} links to {found['target']}"
