"""The pages of `docs/` are run: every block of Python, in the order of its page, in one module, against real servers.

Where a page shows tests, each of them is one here, with its fixtures.
"""

from __future__ import annotations

import ast
import copy
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings

from reactor_coord import testing

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
    module = ModuleType(_module_of(page))
    module.__dict__["DATABASES"] = copy.deepcopy(dict(settings.DATABASES))  # a page may show what to add to settings
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in _blocks(page):
        exec(compile(block, str(page.relative_to(ROOT)), "exec"), module.__dict__)


def _module_of(page: Path) -> str:
    return f"docs_{page.stem.replace('-', '_')}"


def _shown_tests() -> Iterator[Any]:
    """The tests that the pages define, read without running anything."""
    for page in PAGES:
        tree = ast.parse("".join(_blocks(page)))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                needs = [argument.arg for argument in node.args.args]
                marks = [pytest.mark.live] if "live_worker" in needs else []
                yield pytest.param(page, node.name, needs, id=f"{page.stem}-{node.name}", marks=marks)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("page, name, needs", list(_shown_tests()))
def test_a_test_that_a_page_shows_passes(
    page: Path,
    name: str,
    needs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """The page is a file that a worker of the test can import as well."""
    lines = page.read_text(encoding="utf-8").count("\n")
    source = [""] * lines
    for block in _blocks(page):
        for number, line in enumerate(block.splitlines()):
            source[number] = line or source[number]
    (tmp_path / f"{_module_of(page)}.py").write_text("\n".join(source), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, _module_of(page), raising=False)
    module = importlib.import_module(_module_of(page))
    monkeypatch.setitem(sys.modules, module.__name__, module)  # taken out again at the end
    getattr(module, name)(**{fixture: request.getfixturevalue(fixture) for fixture in needs})


def test_u91_the_page_on_testing_names_every_helper_and_shows_every_assertion() -> None:
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    assert [name for name in testing.__all__ if name not in text] == []
    code = "".join(_blocks(ROOT / "docs" / "testing.md"))
    shown = {name for name in testing.__all__ if f"testing.{name}(" in code}
    assert [name for name in testing.__all__ if name.startswith("assert_") and name not in shown] == []


def test_the_page_of_coordination_has_examples() -> None:
    assert len(list(_blocks(ROOT / "docs" / "coordination.md"))) >= 12


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for found in LINK.finditer(page.read_text(encoding="utf-8")):
        assert (page.parent / found["target"]).exists(), f"{page.name} links to {found['target']}"
