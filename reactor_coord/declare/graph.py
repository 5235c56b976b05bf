"""The dependencies of a reactor's steps: no rings in them."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from reactor_coord.errors import DefinitionError


def check_acyclic(label: str, depends_on: Mapping[str, frozenset[str]]) -> None:
    """Raise `DefinitionError` with the path of the first ring found: `a -> b -> a`, each after the next."""
    try:
        TopologicalSorter(depends_on).prepare()
    except CycleError as error:
        ring = list(error.args[1])
        # graphlib gives it in order of running; ours reads "a needs b needs a", beginning with the first by name.
        path = list(reversed(ring))[:-1]
        start = path.index(min(path))
        path = [*path[start:], *path[:start]]
        needs = " -> ".join([*path, path[0]])
        raise DefinitionError(
            f"{label}: its steps wait for each other in a ring: {needs} (each needs the next). "
            "Take one of these references or after= away."
        ) from None
