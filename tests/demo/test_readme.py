"""The README's quickstart is followed to the letter: its blocks become a project, and that project runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.test_show import _environment
from tests.support.bench import bench

ROOT = Path(__file__).resolve().parents[2]
MARKED = re.compile(r"<!-- quickstart: (?P<name>\w+) -->\n```python\n(?P<code>.*?)```", re.DOTALL)
PLAIN = re.compile(r"```python\n(?P<code>.*?)```", re.DOTALL)

# What `django-admin startproject` writes and the README therefore leaves out.
STARTPROJECT = """
SECRET_KEY = "quickstart"
ROOT_URLCONF = "shop.urls"
USE_TZ = True
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
DATABASES = {"default": {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": "shop.sqlite3",
    "TEST": {"NAME": "test_shop.sqlite3"},
    "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
}}
"""


def _blocks() -> dict[str, str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return {found["name"]: found["code"] for found in MARKED.finditer(text)}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project a reader has after step 5. Only the address of Redis is another."""
    root = tmp_path_factory.mktemp("quickstart")
    blocks = _blocks()
    settings = re.sub(r"redis://127\.0\.0\.1:6379/\d", bench().redis_url, blocks["settings"])
    files = {
        "shop/settings.py": settings + STARTPROJECT,
        "shop/celery.py": blocks["celery"],
        "shop/__init__.py": blocks["package"],
        "shop/urls.py": blocks["urls"],
        "payments/__init__.py": "",
        "payments/reactors.py": blocks["reactors"],
        "test_payments.py": blocks["tests"],
        "run.py": blocks["run"],
        "enqueue.py": blocks["enqueue"].split("outcome =")[0],  # no worker runs here
        "pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = shop.settings\npythonpath = .\n",
        "manage.py": (ROOT / "manage.py").read_text().replace("demo_project", "shop"),
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    _in(root, "manage.py", "migrate", "--verbosity=0")
    return root


def _in(root: Path, *arguments: str, input: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**_environment(root), "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "shop.settings"},
        input=input,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_python_block_compiles() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = PLAIN.findall(text)
    assert len(blocks) >= len(_blocks()) >= 8
    for block in blocks:
        compile(block, "README.md", "exec")


def test_the_first_example_declares_a_reactor() -> None:
    """With names in place of the domain code that it leaves out, up to where it runs."""
    code = PLAIN.findall((ROOT / "README.md").read_text(encoding="utf-8"))[0].split("\n\nPayment.run(")[0]
    scope: dict[str, object] = {"gateway": object(), "mail": object(), "__name__": "readme"}
    exec(compile(code, "README.md", "exec"), scope)
    assert list(scope["Payment"].definition.steps) == ["charge", "notify"]  # type: ignore[attr-defined]


def test_the_project_passes_djangos_checks(project: Path) -> None:
    assert "no issues" in _in(project, "manage.py", "check")


def test_running_it_prints_what_the_readme_says(project: Path) -> None:
    said = _in(
        project, "manage.py", "shell", "--verbosity=0", "--command", (project / "run.py").read_text()
    ).splitlines()
    completed, failed, rollback = said
    assert completed.startswith("completed {'receipt': '")
    assert failed == "True notify nobody writes to account 13"
    assert rollback == "()"


def test_the_api_describes_itself_without_further_settings(project: Path) -> None:
    look = (
        "from django.contrib.auth.models import User\n"
        "from django.test import Client\n"
        "staff = Client(SERVER_NAME='localhost')\n"
        "staff.force_login(User.objects.create_superuser('staff'))\n"
        "for page in ('schema', 'docs', 'executions'):\n"
        "    print(page, staff.get(f'/api/{page}/').status_code)\n"
    )
    said = _in(project, "manage.py", "shell", "--verbosity=0", "--command", look)
    assert said.splitlines() == ["schema 200", "docs 200", "executions 200"]


def test_enqueueing_it_gives_an_id_at_once(project: Path) -> None:
    said = _in(project, "manage.py", "shell", "--verbosity=0", "--command", (project / "enqueue.py").read_text())
    assert re.search(r"[0-9a-f-]{36} ready", said)


def test_its_tests_pass(project: Path) -> None:
    assert "3 passed" in _in(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_payments.py")


@pytest.mark.parametrize("command", [("reactors",), ("executions",), ("coordination",)])
def test_its_commands_answer(project: Path, command: tuple[str, ...]) -> None:
    assert _in(project, "manage.py", *command)


def test_a_reactor_is_run_from_the_command_line(project: Path) -> None:
    inputs = ("--input", "account_id=1", "--input", "amount=9.50")
    assert "completed" in _in(project, "manage.py", "run_reactor", "payments.reactors.Payment", *inputs)
