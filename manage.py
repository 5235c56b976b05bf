#!/usr/bin/env python
"""The demo project's command line."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run a management command against `demo_project.settings`, unless the environment names others."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "demo_project.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit(
            "Django is not installed here. `make demo` makes an environment of its own; by hand: "
            "python -m venv .venv && .venv/bin/pip install -c constraints.txt -e '.[dev,test,commands]'"
        ) from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
