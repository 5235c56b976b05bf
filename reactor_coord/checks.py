"""System checks: what would go wrong at run time, told by `manage.py check`, each with an id and the way out.

`reactor_coord.E0xx` stop the project, `W0xx` warn. Those that ask Redis run only with `check --database ...` (and so before a
`migrate`): nothing else opens a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import connections
from django.utils.module_loading import import_string
from django_redis.exceptions import ConnectionInterrupted
from redis.exceptions import RedisError

from reactor_coord import conf
from reactor_coord.declare import registry
from reactor_coord.declare.coordination import RateLimitDeclaration
from reactor_coord.declare.shown import shown
from reactor_coord.declare.suggest import did_you_mean
from reactor_coord.runtime.dispatch import dispatcher_problem
from reactor_coord.storage import clock

TAG = "reactor_coord"
_IDS = {"shape": "E001", "unknown": "E002", "value": "E003", "together": "E004"}
_LEAST_SQLITE_TIMEOUT_SECONDS = 10


@register(TAG)
def check_settings(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """`REACTOR_COORD`: unknown keys, wrong values, values that contradict each other, and paths that lead nowhere."""
    raw = getattr(django_settings, conf.SETTING, {})
    if wrong := conf.problems(raw):
        return [Error(each.message, hint=each.hint, id=f"{TAG}.{_IDS[each.kind]}") for each in wrong]
    current = conf.settings()
    return [*_redis_alias(current), *_paths(current)]


@register(TAG)
def check_rate_limits(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Limits that reactors name and the settings lack."""
    if conf.problems(getattr(django_settings, conf.SETTING, {})):
        return []
    limits = conf.settings().RATE_LIMITS
    return [
        Error(
            f"{place} names the rate limit {name!r}, which {conf.SETTING}['RATE_LIMITS'] does not have."
            f"{did_you_mean(name, limits)}",
            hint=f"Add {name!r} there, as in {{{name!r}: {{'second': 5}}}}, or correct the name.",
            id=f"{TAG}.E008",
        )
        for place, name in _named_limits()
        if name not in limits
    ]


def _named_limits() -> Iterator[tuple[str, str]]:
    """Each place whose declaration names a limit, with that name."""
    for definition in sorted(registry.all_definitions(), key=lambda each: each.name):
        places = [(definition.name, definition.coordination)]
        places += [(f"{definition.name}.{name}", step.coordination) for name, step in definition.steps.items()]
        for place, declarations in places:
            declared = declarations.get("rate_limit")
            if isinstance(declared, RateLimitDeclaration) and declared.name is not None:
                yield place, declared.name


def _redis_alias(current: conf.Settings) -> Iterator[CheckMessage]:
    caches = django_settings.CACHES
    alias = current.REDIS_ALIAS
    named = f"CACHES[{alias!r}]"
    if alias not in caches:
        yield Error(
            f"{conf.SETTING}['REDIS_ALIAS'] is {alias!r}, but CACHES has no such alias.",
            hint=f"Add a django-redis cache {alias!r}, or name one of: {', '.join(sorted(caches))}.",
            id=f"{TAG}.E005",
        )
    elif not _is_django_redis(str(caches[alias].get("BACKEND", ""))):
        yield Error(
            f"{named} is a {caches[alias].get('BACKEND')!r}, but coordination needs Redis by django-redis.",
            hint=f"Set its BACKEND to 'django_redis.cache.RedisCache', or {conf.SETTING}['REDIS_ALIAS'] to one that has it.",
            id=f"{TAG}.E006",
        )


def _is_django_redis(backend: str) -> bool:
    from django_redis.cache import RedisCache

    try:
        found = import_string(backend)
    except ImportError:
        return False
    return isinstance(found, type) and issubclass(found, RedisCache)


def _paths(current: conf.Settings) -> Iterator[CheckMessage]:
    yield from _path("DISPATCHER", current.DISPATCHER, dispatcher_problem)
    for named in current.API_PERMISSION_CLASSES:
        yield from _path("API_PERMISSION_CLASSES", named, _permission_problem)


def _path(key: str, named: Any, problem_of: Callable[[Any], str]) -> Iterator[CheckMessage]:
    """A dotted path (or the class itself) that cannot be imported, or leads to something that will not do."""
    try:
        found = import_string(named) if isinstance(named, str) else named
    except ImportError as error:
        yield Error(
            f"{conf.SETTING}[{key!r}] names {named!r}, which cannot be imported: {str(error).rstrip('.')}.",
            hint="Correct the dotted path, or install what it needs.",
            id=f"{TAG}.E007",
        )
        return
    if problem := problem_of(found):
        yield Error(
            f"{conf.SETTING}[{key!r}] names {shown(named)}, which {problem.rstrip('.')}.",
            hint="Name a class that does, as the default does: " + str(_first(conf.DEFAULTS[key])) + ".",
            id=f"{TAG}.E009",
        )


def _first(default: object) -> object:
    return default[0] if isinstance(default, tuple) else default


def _permission_problem(found: Any) -> str:
    is_one = isinstance(found, type) and callable(getattr(found, "has_permission", None))
    return "" if is_one else "is no permission class of Django REST framework: it has no has_permission(request, view)"


@register(TAG)
def check_database(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """The database of the rows: what SQLite needs to serve several processes."""
    using = clock.alias()
    if connections[using].vendor != "sqlite":
        return []
    options = connections[using].settings_dict.get("OPTIONS") or {}
    found: list[CheckMessage] = []
    if str(options.get("transaction_mode") or "").upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        found.append(
            Warning(
                f"DATABASES[{using!r}] is SQLite with deferred transactions: with several workers some fail at once with "
                "'database is locked'.",
                hint=f"Set DATABASES[{using!r}]['OPTIONS'] = {{'transaction_mode': 'IMMEDIATE', 'timeout': 20}}.",
                id=f"{TAG}.W001",
            )
        )
    if float(options.get("timeout") or 5) < _LEAST_SQLITE_TIMEOUT_SECONDS:
        found.append(
            Warning(
                f"DATABASES[{using!r}] is SQLite and gives up waiting for another writer after "
                f"{float(options.get('timeout') or 5):g} seconds.",
                hint=f"Set DATABASES[{using!r}]['OPTIONS']['timeout'] to 20, and init_command to "
                "'PRAGMA journal_mode=WAL;', or use PostgreSQL.",
                id=f"{TAG}.W002",
            )
        )
    return found


@register(TAG, "redis")
def check_redis(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """The Redis server: reachable, of a version that has what is used, and never throwing keys away for space."""
    raw = getattr(django_settings, conf.SETTING, {})
    if not databases or conf.problems(raw) or any(_redis_alias(conf.settings())):
        return []
    alias = conf.settings().REDIS_ALIAS
    try:
        nodes = _nodes(alias)
    except (RedisError, ConnectionInterrupted, OSError, ValueError) as error:
        message = f"The Redis of CACHES[{alias!r}] cannot be reached: {type(error).__name__}: {str(error).rstrip('.')}."
        hint = "Start it, or correct LOCATION and OPTIONS of that cache. Coordinated steps fail until then."
        return [Warning(message, hint=hint, id=f"{TAG}.W003")]
    return [message for info in nodes for message in _node_problems(alias, info)]


def _nodes(alias: str) -> list[Mapping[str, Any]]:
    from django_redis import get_redis_connection

    client = get_redis_connection(alias)
    parts = [client.info(section) for section in ("server", "memory")]
    if all(isinstance(each, Mapping) for part in parts for each in part.values()):  # a cluster answers by node
        return [{**parts[0].get(node, {}), **parts[1].get(node, {})} for node in parts[0]]
    return [{**parts[0], **parts[1]}]


def _node_problems(alias: str, info: Mapping[str, Any]) -> Iterator[CheckMessage]:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield Warning(
            f"The Redis of CACHES[{alias!r}] has maxmemory-policy {policy!r}: short of memory it throws away held locks.",
            hint="Set maxmemory-policy to noeviction, or name a Redis of its own for coordination in REDIS_ALIAS.",
            id=f"{TAG}.W004",
        )
    least, name = ((7, 2), "valkey") if "valkey_version" in info else ((6, 2), "redis")
    version = str(info.get(f"{name}_version", ""))
    numbers = tuple(int(each) for each in version.split(".")[:2] if each.isdigit())
    if len(numbers) == 2 and numbers < least:
        yield Warning(
            f"CACHES[{alias!r}] is {name.title()} {version}; coordination is made for {least[0]}.{least[1]} and later.",
            hint="Upgrade the server.",
            id=f"{TAG}.W005",
        )
