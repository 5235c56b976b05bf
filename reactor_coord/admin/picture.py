"""The graph of an execution as positions for an inline SVG: a column per level, a box per step, a curve per dependency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from reactor_coord.operations.views import StepView

BOX_WIDTH, BOX_HEIGHT = 168, 50
GAP_X, GAP_Y = 44, 14
MARGIN = 6
LARGEST = 80
"""Steps drawn at most: beyond that a table is easier to read than a picture."""


@dataclass(frozen=True, slots=True)
class Box:
    """One step, drawn."""

    step: StepView
    x: int
    y: int

    @property
    def middle(self) -> int:
        """Where its text sits."""
        return self.x + BOX_WIDTH // 2

    @property
    def text_x(self) -> int:
        """Left edge of its text."""
        return self.x + 14

    @property
    def name_y(self) -> int:
        """Baseline of its name."""
        return self.y + 21

    @property
    def note_y(self) -> int:
        """Baseline of what stands below its name."""
        return self.y + 38

    @property
    def name(self) -> str:
        """Its name, as much as fits."""
        return _cut(self.step.name, 20)

    @property
    def note(self) -> str:
        """What it is doing, and what it coordinates."""
        coordinates = self.step.coordination[0].primitive if self.step.coordination else ""
        return _cut(" · ".join(word for word in (self.step.status.replace("_", " "), coordinates) if word), 26)


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    curves: tuple[str, ...]


def draw(steps: Sequence[StepView]) -> Picture | None:
    """None when there is nothing to draw or too much."""
    if not steps or len(steps) > LARGEST:
        return None
    columns: dict[int, list[StepView]] = defaultdict(list)
    for step in steps:
        columns[step.level].append(step)
    tallest = max(len(column) for column in columns.values())
    height = tallest * (BOX_HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN
    boxes: dict[str, Box] = {}
    for level, column in columns.items():
        top = (height - len(column) * (BOX_HEIGHT + GAP_Y) + GAP_Y) // 2
        for row, step in enumerate(column):
            x, y = MARGIN + level * (BOX_WIDTH + GAP_X), top + row * (BOX_HEIGHT + GAP_Y)
            boxes[step.name] = Box(step, x, y)
    width = (max(columns) + 1) * (BOX_WIDTH + GAP_X) - GAP_X + 2 * MARGIN
    curves = [_curve(boxes[source], box) for box in boxes.values() for source in box.step.depends_on if source in boxes]
    return Picture(width, height, tuple(boxes.values()), tuple(curves))


def _curve(source: Box, target: Box) -> str:
    x1, y1 = source.x + BOX_WIDTH, source.y + BOX_HEIGHT // 2
    x2, y2 = target.x, target.y + BOX_HEIGHT // 2
    bend = max((x2 - x1) // 2, 12)
    return f"M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
