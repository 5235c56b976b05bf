"""Scripts and commands sent on connections of the user's own django-redis pool, past the client object.

The client costs more than the scripts it sends (a third of a lock taken and given back), so `EVALSHA` goes out on a
connection borrowed from its pool. Care is taken here, once: the connection goes back on every path and is cut when its
reply is late or broken; a script the server forgot is sent again with its text; a connection that turns out to be dead
is tried once more, which is safe because every script is idempotent by its token. What is wrong with a key is looked into
(`damage`). Whatever else is wrong with Redis is a `CoordinationUnavailable` with the cause chained: `IGNORE_EXCEPTIONS`,
prefixes, versions and compressors of the cache have no say. Clients without a pool of their own (a cluster) are asked
through their methods.

Opens nothing before the first call. Safe over a fork: the pool, and `Blocking` here, begin anew in a child.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.cache.backends.base import InvalidCacheBackendError
from django.core.exceptions import ImproperlyConfigured
from redis import exceptions
from redis.client import NEVER_DECODE

from reactor_coord.coordination import damage
from reactor_coord.coordination.keys import to_bytes
from reactor_coord.coordination.scripts import Script
from reactor_coord.errors import CoordinationUnavailable

hiredis: Any
try:
    import hiredis
except ImportError:  # redis-py packs as well, more slowly
    hiredis = None

REPLY_TIMEOUT = 5.0
"""Seconds to wait for a reply where the project sets no `socket_timeout`: nothing here may hang for ever."""

ENOUGH_FOR_OTHERS = 8
"""Connections a pool must allow for one of them to be kept at hand."""

_FAILURES = (exceptions.RedisError, exceptions.RedisClusterException, OSError)

Argument = bytes | str | int


class Connection:
    """Redis behind one alias of `CACHES`."""

    def __init__(self, alias: str = "default") -> None:
        self.alias = alias
        self._client: Any = None
        self._pool: Any = None
        self._at_hand: list[Any] = []
        self._is_retired = False
        self._pid = os.getpid()
        self.blocking = Blocking(self)

    @property
    def client(self) -> Any:
        """django-redis' raw client, with the user's options."""
        if self._client is None:
            from django_redis import get_redis_connection

            try:
                self._client = get_redis_connection(self.alias)
            except _FAILURES as error:  # a cluster's client asks for its nodes when it is made
                raise CoordinationUnavailable(reason=_reason(error), sent=False) from error
            except (InvalidCacheBackendError, NotImplementedError) as error:
                raise ImproperlyConfigured(
                    f"CACHES[{self.alias!r}], which REACTOR_COORD['REDIS_ALIAS'] names, must be there and have the BACKEND "
                    f"'django_redis.cache.RedisCache'. `manage.py check` says what it has."
                ) from error
        return self._client

    @property
    def is_cluster(self) -> bool:
        return self.pool is None

    @property
    def pool(self) -> Any:
        """The client's pool; `None` for a client that has none, as a cluster's has one for each node."""
        if self._pool is None:
            self._pool = getattr(self.client, "connection_pool", None)
        return self._pool

    def close(self) -> None:
        """Close what this process has open here; a later call opens anew."""
        self.blocking.close()
        if self._pool is not None:
            self._pool.disconnect()
        elif self._client is not None:
            self._client.close()

    def retire(self) -> None:
        """Keep nothing at hand from now on: another takes this one's place, on the same pool. Calls are served still."""
        self._is_retired = True
        self.blocking.close()
        while self._at_hand and self._pid == os.getpid():
            self._pool.release(self._at_hand.pop())

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument], timeout: float | None = None) -> Any:
        """Run a script: one round trip. `timeout` bounds the wait for the reply below the project's own setting.

        Raises `CoordinationDamaged` where a key holds what no script of ours writes; a hint that does is made anew, and the
        script sent again.
        """
        try:
            return self._run(script, keys, args, timeout)
        except exceptions.ResponseError as error:
            self._mend(keys, args, error)
        try:
            return self._run(script, keys, args, timeout)
        except exceptions.ResponseError as error:
            raise damage.examine(self, keys, args, error) from error

    def _mend(self, keys: Sequence[bytes], args: Sequence[Argument], error: exceptions.ResponseError) -> None:
        """Return when what was damaged is as good as new."""
        damaged = damage.examine(self, keys, args, error)
        if not damage.mend(self, damaged):
            raise damaged from error

    def _run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument], timeout: float | None) -> Any:
        pool = self._pool if self._pool is not None else self.pool
        if pool is None:
            return self._run_through_client(script, keys, args)
        connection = self._borrow(pool)
        try:
            return _converse(connection, script, keys, args, timeout)
        except _FAILURES as error:
            if damage.is_damage(error):
                raise
            raise CoordinationUnavailable(reason=_reason(error)) from error
        except BaseException:
            connection.disconnect()  # a time limit or Ctrl-C: the reply is still to come, so the connection is spoilt
            raise
        finally:
            self._return(pool, connection)

    def _borrow(self, pool: Any) -> Any:
        """The connection at hand if no other thread has it, else one of the pool's."""
        if self._pid == os.getpid():
            try:
                return self._at_hand.pop()
            except IndexError:
                pass
        else:  # a fork's child: the pool begins anew by itself
            self._pid, self._at_hand = os.getpid(), []
        try:
            return pool.get_connection()
        except _FAILURES as error:
            raise CoordinationUnavailable(reason=_reason(error), sent=False) from error

    def _return(self, pool: Any, connection: Any) -> None:
        """One stays at hand, where the pool has enough for others: to borrow and check one costs as much as a script."""
        may_keep = not self._is_retired and getattr(pool, "max_connections", 0) >= ENOUGH_FOR_OTHERS
        if self._at_hand or self._pid != os.getpid() or not may_keep:
            pool.release(connection)
        else:
            self._at_hand.append(connection)

    def commands(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Send plain commands as one pipeline (no transaction): one round trip, on a cluster one for each node.

        Raises `CoordinationDamaged` as `run` does.
        """
        try:
            return self._send(commands)
        except exceptions.ResponseError as error:
            keys = [to_bytes(each[1]) if isinstance(each[1], str) else each[1] for each in commands if len(each) > 1]
            self._mend([key for key in keys if isinstance(key, bytes)], (), error)
        try:
            return self._send(commands)
        except exceptions.ResponseError as error:
            raise damage.examine(self, (), (), error) from error

    def ask(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """The same, without a look at what is wrong with a key: whatever is wrong is `CoordinationUnavailable`."""
        try:
            return self._send(commands)
        except exceptions.ResponseError as error:
            raise CoordinationUnavailable(reason=_reason(error)) from error

    def scan(self, pattern: str) -> Iterator[bytes]:
        """Every name that matches, on every node of a cluster."""
        try:
            for name in self.client.scan_iter(match=pattern, count=1000):
                yield to_bytes(name) if isinstance(name, str) else name
        except _FAILURES as error:
            raise CoordinationUnavailable(reason=_reason(error)) from error

    def _send(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        if not commands:
            return []
        try:
            pipeline = self.client.pipeline(transaction=False)
            for name, *arguments in commands:
                pipeline.execute_command(name, *_encoded(arguments), **{NEVER_DECODE: True})
            return list(pipeline.execute())
        except _FAILURES as error:
            if damage.is_damage(error):
                raise
            raise CoordinationUnavailable(reason=_reason(error)) from error

    def _run_through_client(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        try:
            try:
                return self.client.evalsha(script.sha.decode(), len(keys), *keys, *_encoded(args))
            except exceptions.NoScriptError:
                return self.client.eval(script.text, len(keys), *keys, *_encoded(args))
        except _FAILURES as error:
            if damage.is_damage(error):
                raise
            raise CoordinationUnavailable(reason=_reason(error)) from error


def _converse(
    connection: Any, script: Script, keys: Sequence[bytes], args: Sequence[Argument], timeout: float | None
) -> Any:
    try:
        return _ask(connection, script, keys, args, timeout)
    except exceptions.ReadOnlyError:
        connection.disconnect()  # after a failover the same name may lead to the new primary
        raise
    except exceptions.TimeoutError:
        raise  # the caller knows what a lost reply means; waiting as long again would only hold him up
    except (exceptions.ConnectionError, OSError):
        connection.disconnect()
        return _ask(connection, script, keys, args, timeout)


def _ask(
    connection: Any, script: Script, keys: Sequence[bytes], args: Sequence[Argument], timeout: float | None
) -> Any:
    connection.send_packed_command(_packed(connection, b"EVALSHA", script.sha, len(keys), *keys, *args))
    try:
        return _reply(connection, timeout)
    except exceptions.NoScriptError:
        # With its text, which loads it as well.
        connection.send_packed_command(_packed(connection, b"EVAL", script.text, len(keys), *keys, *args))
        return _reply(connection, timeout)


def _packed(connection: Any, *arguments: Argument) -> list[bytes]:
    """The command in the server's protocol. Text is UTF-8 always, whatever `encoding` the connection has."""
    packed: list[bytes]
    if hiredis is not None:
        try:
            packed = [hiredis.pack_command(arguments)]
            return packed
        except UnicodeEncodeError:
            pass  # half a surrogate pair, which only `to_bytes` can carry
    packed = connection.pack_command(*_encoded(arguments))
    return packed


def _encoded(arguments: Sequence[Argument]) -> list[bytes | int]:
    return [to_bytes(each) if isinstance(each, str) else each for each in arguments]


def _reply(connection: Any, timeout: float | None) -> Any:
    configured = connection.socket_timeout
    if timeout is None and configured is not None:
        return connection.read_response(disable_decoding=True)
    longest = min(limit for limit in (timeout, configured, REPLY_TIMEOUT) if limit is not None)
    return _reply_within(connection, longest)


def _reply_within(connection: Any, seconds: float) -> Any:
    """A reply that must begin within `seconds`, whatever the connection's own timeout; else the connection is spoilt."""
    if not connection.can_read(timeout=seconds):
        connection.disconnect()
        raise exceptions.TimeoutError(f"no reply within {seconds:.3g} s")
    return connection.read_response(disable_decoding=True)


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Blocking:
    """Connections of our own for `BLPOP`, made like the pool's but outside it: a sleeper never takes one others need.

    As many as threads have ever slept at once in this process; kept for the next sleepers.
    """

    def __init__(self, owner: Connection) -> None:
        self._owner = owner
        self._idle: list[Any] = []
        self._pid = os.getpid()

    def pop(self, inbox: bytes, seconds: float) -> bool:
        """Sleep until something is pushed to `inbox`, at most `seconds`. False: nothing came.

        A connection that had died while idle is tried once more; then Redis counts as unavailable.
        """
        if self._owner.is_cluster:
            return self._pop_through_client(inbox, seconds)
        connection = self._borrow()
        try:
            try:
                woken = _sleep_on(connection, inbox, seconds)
            except _FAILURES:
                connection.disconnect()
                woken = _sleep_on(connection, inbox, seconds)
        except _FAILURES as error:
            connection.disconnect()
            raise CoordinationUnavailable(reason=_reason(error)) from error
        except BaseException:  # a time limit or Ctrl-C: the reply is still to come, so the connection is spoilt
            connection.disconnect()
            raise
        self._return(connection)
        return woken

    def close(self) -> None:
        """Close the idle ones."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()

    def _borrow(self) -> Any:
        if self._pid != os.getpid():  # the parent's sockets: dropped unread, never shut down
            self._pid, self._idle = os.getpid(), []
        try:
            return self._idle.pop()  # atomic, so that no lock can be left behind by a fork
        except IndexError:
            pass
        pool = self._owner.pool
        return pool.connection_class(**pool.connection_kwargs)

    def _return(self, connection: Any) -> None:
        if self._pid == os.getpid():
            self._idle.append(connection)

    def _pop_through_client(self, inbox: bytes, seconds: float) -> bool:
        try:
            return self._owner.client.blpop([inbox], timeout=min(max(seconds, 0.001), 1.0)) is not None
        except _FAILURES as error:
            raise CoordinationUnavailable(reason=_reason(error)) from error


def _sleep_on(connection: Any, inbox: bytes, seconds: float) -> bool:
    connection.send_command("BLPOP", inbox, f"{max(seconds, 0.001):.3f}")  # 0 would mean for ever
    return _reply_within(connection, seconds + REPLY_TIMEOUT) is not None
