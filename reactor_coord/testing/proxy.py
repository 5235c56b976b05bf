"""A TCP proxy that misbehaves on request, to stand before Redis or the database.

It forwards bytes and knows no protocol; "a reply" is what the server sends after a request. One thread per direction
and connection: meant for tests, not for load.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

CHUNK = 65536


class Proxy:
    """Forwards to the server of `url`; connect to `self.url`. All knobs may be turned while it runs.

    `delay_up` and `delay_down` are seconds added to every chunk towards the server and back.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        default = 6379 if self._parts.scheme.startswith("redis") else 5432
        self._target = (self._parts.hostname or "127.0.0.1", self._parts.port or default)
        self.delay_up = 0.0
        self.delay_down = 0.0
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self._lock = threading.Lock()
        self._to_swallow = 0
        self._match = b""
        self._swallowed = 0
        self._links: set[_Link] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True)

    @property
    def url(self) -> str:
        """The server's address with the proxy in its place."""
        user = self._parts.netloc.rpartition("@")[0]
        return self._parts._replace(netloc=f"{user}{'@' if user else ''}127.0.0.1:{self.port}").geturl()

    @property
    def swallowed(self) -> int:
        """How many replies were swallowed so far."""
        return self._swallowed

    def cut(self) -> None:
        """Close every connection now; new ones are accepted."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def refuse(self, refusing: bool = True) -> None:
        """Close new connections at once, and the present ones: the server is down. `refuse(False)`: it is back."""
        self._refusing = refusing
        if refusing:
            self.cut()

    def pause(self) -> None:
        """Hold everything back; connections stay open: the network is gone."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let what was held back flow."""
        self._flowing.set()

    def swallow_replies(self, count: int = 1, *, match: bytes = b"") -> None:
        """Drop the next `count` replies to requests that contain `match` (any case), and close their connection.

        The server did the work and the client cannot know: the most treacherous fault there is.
        """
        with self._lock:
            self._to_swallow, self._match = count, match.lower()

    def start(self) -> Self:
        """Begin to accept."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close everything. Idempotent."""
        self._refusing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._listener.close()
        self.cut()
        self._flowing.set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            link = _Link(self, client, server)
            with self._lock:
                self._links.add(link)
            link.start()

    def _forget(self, link: _Link) -> None:
        with self._lock:
            self._links.discard(link)

    def _claims_reply_to(self, request: bytes) -> bool:
        with self._lock:
            return self._to_swallow > 0 and self._match in request.lower()

    def _take_swallow(self) -> bool:
        with self._lock:
            if self._to_swallow <= 0:
                return False
            self._to_swallow -= 1
            self._swallowed += 1
            return True


class _Link:
    """One client's connection and ours to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._doomed = False  # the next reply is to be swallowed

    def start(self) -> None:
        for name, run in (("up", self._up), ("down", self._down)):
            threading.Thread(target=run, name=f"proxy-{self._proxy.port}-{name}", daemon=True).start()

    def close(self) -> None:
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._proxy._forget(self)

    def _up(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := self._client.recv(CHUNK):
                self._hold(self._proxy.delay_up)
                if self._proxy._claims_reply_to(chunk):
                    self._doomed = True
                self._server.sendall(chunk)
        self.close()

    def _down(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := self._server.recv(CHUNK):
                self._hold(self._proxy.delay_down)
                if self._doomed and self._proxy._take_swallow():
                    break
                self._client.sendall(chunk)
        self.close()

    def _hold(self, delay: float) -> None:
        if delay:
            time.sleep(delay)
        self._proxy._flowing.wait()
