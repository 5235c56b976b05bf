"""`docker-compose.yml` and the Dockerfile it builds, as the tests read them: no engine is needed for either."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = re.compile(r'"(?P<what>[.\w-]+(?:\[[\w,-]+\])?)"')


def services() -> Mapping[str, Any]:
    """The services, anchors and merge keys resolved."""
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    found: Mapping[str, Any] = loaded["services"]
    return found


def argv(command: str | list[str]) -> list[str]:
    """What a container runs: a string is split as a shell would, `$$` is how the file writes `$`."""
    words = shlex.split(command) if isinstance(command, str) else list(command)
    return [word.replace("$$", "$") for word in words]


def health_argv(service: Mapping[str, Any]) -> list[str]:
    """What tells whether the service is healthy."""
    kind, *words = service["healthcheck"]["test"]
    return ["sh", "-c", words[0].replace("$$", "$")] if kind == "CMD-SHELL" else words


def dockerfile(service: Mapping[str, Any]) -> str:
    """The text of the Dockerfile that builds the service."""
    build = service["build"]
    return Path(ROOT, build["context"], build["dockerfile"]).read_text(encoding="utf-8")


def absent_modules(text: str) -> list[str]:
    """The top-level modules of this environment that the image built from this Dockerfile would not have."""
    there = {_normal(name) for name in _installed(text)}
    modules = packages_distributions()
    return sorted(name for name, whose in modules.items() if not there & {_normal(each) for each in whose})


def _installed(text: str) -> Iterator[str]:
    """The distributions that `pip install` brings, with all that they need."""
    (line,) = re.findall(r"pip install (.+)", text)
    seen: set[tuple[str, frozenset[str]]] = set()
    for found in INSTALLED.finditer(line):
        name, _, extras = found["what"].partition("[")
        asked = frozenset(filter(None, extras.rstrip("]").split(",")))
        if name == ".":
            for each in _own_requirements(asked):
                yield from _closure(each.name, frozenset(each.extras), seen)
        else:
            yield from _closure(name, asked, seen)


def _own_requirements(extras: frozenset[str]) -> list[Requirement]:
    """This project's, as they are written now and not as they were when it was installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    return [Requirement(each) for each in wanted]


def _closure(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    yield name
    try:
        requires = distribution(name).requires or []
    except PackageNotFoundError:  # what another platform or version would need
        return
    for each in map(Requirement, requires):
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in {*extras, ""}):
            yield from _closure(each.name, frozenset(each.extras), seen)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
