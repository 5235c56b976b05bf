"""Printing: tables with rich where it is installed, plain text or JSON otherwise."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from bench.result import Figure, Row

PACKAGES = ("redis", "hiredis", "django-redis", "python-redis-lock", "limits", "celery", "psycopg", "Django")


def surroundings() -> str:
    """The versions that the figures belong to."""
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def as_json(rows: Sequence[Row], failures: Sequence[tuple[str, str]]) -> str:
    """All of it, for a program."""
    return json.dumps(
        {
            "surroundings": surroundings(),
            "rows": [dataclasses.asdict(row) for row in rows],
            "not_measured": [{"name": name, "reason": reason} for name, reason in failures],
        },
        indent=2,
    )


def show(row: Row) -> None:
    """One row as a table of its own."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return _show_plain(row)
    table = Table(title=f"{row.name}: {row.title}", title_justify="left", title_style="bold")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column(f"x {row.floor}" if row.floor else "", justify="right")
    for figure in row.figures:
        table.add_row(figure.name, figure.text, _ratio(figure), style="cyan" if figure.is_ours else None)
    console = Console(highlight=False)
    console.print(table)
    for line in _below(row):
        console.print(f"  {line}", markup=False, soft_wrap=True)
    console.print()


def _show_plain(row: Row) -> None:
    print(f"{row.name}: {row.title}")
    if row.floor:
        print(f"  (ratios: to {row.floor})")
    for figure in row.figures:
        print(f"  {figure.name:<44} {figure.text:>18} {_ratio(figure):>7}")
    for line in _below(row):
        print(f"  {line}")
    print()


def _below(row: Row) -> list[str]:
    lines = [row.conditions, f"checked: {row.checked}", *row.notes]
    if row.aim:
        lines.append(f"aim: {row.aim}: {'met' if row.is_met else 'NOT met'}")
    return lines


def _ratio(figure: Figure) -> str:
    return "" if figure.ratio is None else f"{figure.ratio:.2f}"
