"""The five decorators: where they go, what wins, and every bad option refused at import."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Callable
from typing import Any

import pytest

from reactor_coord import (
    DefinitionError,
    Input,
    Reactor,
    Step,
    async_step,
    compose,
    interrupt,
    map_each,
    step,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.declare.coordination import (
    LockDeclaration,
    OrderedLockDeclaration,
    PeriodDeclaration,
    RateLimitDeclaration,
    SemaphoreDeclaration,
)
from reactor_coord.declare.decorators import Coordination

FIVE: dict[str, Callable[[], Coordination]] = {
    "lock": lambda: with_lock("acct:{who}"),
    "semaphore": lambda: with_semaphore("acct:{who}", limit=2),
    "rate_limit": lambda: with_rate_limit("acct:{who}", limit=2, period="minute"),
    "period": lambda: with_period("acct:{who}", every="hour"),
    "ordered_lock": lambda: with_ordered_lock("acct:{who}"),
}
five = pytest.mark.parametrize("primitive", FIVE)


class Bare(Step):
    """Declares nothing."""

    who = Input(int)

    def run(self) -> int:
        return self.who


def fresh() -> type[Step]:
    return type("Fresh", (Bare,), {})


def reactor(name: str = "Flow", **body: Any) -> type[Reactor]:
    body.setdefault("who", Input(int))
    return type(name, (Reactor,), body)


@five
def test_declare_on_a_step_class(primitive: str) -> None:
    target = FIVE[primitive]()(fresh())
    assert list(target.coordination) == [primitive]
    assert target.coordination[primitive].primitive == primitive
    flow = reactor(work=step(target))
    assert flow.definition.step("work").coordination == target.coordination


@five
def test_declare_on_an_inline_step_below_step(primitive: str) -> None:
    def body(who: int) -> int:
        return who

    flow = reactor(work=step()(FIVE[primitive]()(body)))
    definition = flow.definition.step("work")
    assert list(definition.coordination) == [primitive]
    assert definition.step_class is not None
    assert definition.step_class.coordination == definition.coordination


@five
def test_declare_on_an_inline_step_above_step(primitive: str) -> None:
    def body(who: int) -> int:
        return who

    flow = reactor(work=FIVE[primitive]()(step()(body)))
    assert list(flow.definition.step("work").coordination) == [primitive]


@five
def test_declare_on_a_reactor(primitive: str) -> None:
    flow = FIVE[primitive]()(reactor(work=step(Bare)))
    assert list(flow.coordination) == list(flow.definition.coordination) == [primitive]
    assert flow.definition.step("work").coordination == {}


@five
def test_declare_in_step_as_a_value(primitive: str) -> None:
    flow = reactor(work=step(Bare, coordination=[FIVE[primitive]()]), other=step(Bare, coordination=FIVE[primitive]()))
    assert list(flow.definition.step("work").coordination) == [primitive]
    assert list(flow.definition.step("other").coordination) == [primitive]
    assert Bare.coordination == {}


@five
def test_declare_on_an_interrupt_raises_and_points_to_the_reactor(primitive: str) -> None:
    for node in (interrupt(coordination=[FIVE[primitive]()]), FIVE[primitive]()(interrupt())):
        with pytest.raises(DefinitionError) as caught:
            reactor(review=node)
        assert f"with_{primitive}" in str(caught.value)
        assert "step 'review' of Flow" in str(caught.value)
        assert "Declare it on the reactor" in str(caught.value)


@five
def test_declare_is_inherited_and_replaced_when_declared_again(primitive: str) -> None:
    base = FIVE[primitive]()(fresh())
    child: type[Step] = type("Child", (base,), {})
    assert child.coordination == base.coordination
    again = {
        "lock": with_lock("other:{who}"),
        "semaphore": with_semaphore("other", limit=9),
        "rate_limit": with_rate_limit(name="stripe"),
        "period": with_period("other", every=60),
        "ordered_lock": with_ordered_lock("other"),
    }[primitive]
    again(child)
    assert child.coordination[primitive] == again.declaration
    assert base.coordination[primitive] != again.declaration


@five
def test_declare_twice_on_one_target_is_an_error(primitive: str) -> None:
    targets: list[Callable[[], Any]] = [
        fresh,
        lambda: reactor(work=step(Bare)),
        lambda: step(Bare),
        lambda: lambda who: who,
    ]
    for target in targets:
        with pytest.raises(DefinitionError, match=f"with_{primitive} is declared twice"):
            FIVE[primitive]()(FIVE[primitive]()(target()))
    with pytest.raises(DefinitionError, match="twice"):
        step(Bare, coordination=[FIVE[primitive](), FIVE[primitive]()])


def test_declare_nothing_is_an_empty_mapping() -> None:
    assert Bare.coordination == {}
    assert Step.coordination == {}
    assert Reactor.coordination == {}
    with pytest.raises(TypeError):
        Bare.coordination["lock"] = None  # type: ignore[index]


def test_declare_several_primitives_together_in_one_fixed_order() -> None:
    target = fresh()
    for primitive in ("semaphore", "lock", "rate_limit", "period", "ordered_lock"):
        FIVE[primitive]()(target)
    assert list(target.coordination) == ["ordered_lock", "period", "rate_limit", "lock", "semaphore"]


def test_declare_on_step_wins_over_the_class_and_leaves_the_rest() -> None:
    target = FIVE["semaphore"]()(FIVE["lock"]()(fresh()))
    flow = reactor(work=step(target, coordination=[with_lock("mine:{who}", ttl=5)]), plain=step(target))
    found = flow.definition.step("work").coordination
    assert found["lock"] == with_lock("mine:{who}", ttl=5).declaration
    assert found["semaphore"] == target.coordination["semaphore"]
    assert flow.definition.step("plain").coordination == target.coordination


def test_declare_on_map_async_and_compose_nodes() -> None:
    child = FIVE["lock"]()(reactor("Child", work=step(Bare)))
    flow = reactor(
        each=map_each(FIVE["lock"]()(fresh()), over=[1], who=1, coordination=[with_semaphore("s", limit=1)]),
        late=async_step(Bare, coordination=[FIVE["lock"]()]),
        nested=compose(child, coordination=[FIVE["semaphore"]()]),
    )
    assert list(flow.definition.step("each").coordination) == ["lock", "semaphore"]
    assert list(flow.definition.step("late").coordination) == ["lock"]
    # The nested reactor honours its own; what stands at the node is around it.
    assert list(flow.definition.step("nested").coordination) == ["semaphore"]


def test_declare_on_a_reactor_is_inherited_and_steps_are_unchanged() -> None:
    base = FIVE["lock"]()(reactor("Base", work=step(Bare)))
    child: type[Reactor] = FIVE["semaphore"]()(type("Child", (base,), {}))
    assert list(child.coordination) == ["lock", "semaphore"]
    assert list(base.coordination) == ["lock"]
    assert child.definition.steps.keys() == base.definition.steps.keys()


def test_declare_names_that_the_target_has_no_input_for_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Fresh: with_lock\('a:\{whom\}'\) reads 'whom'.*Did you mean 'who'\?"):
        with_lock("a:{whom}")(fresh())
    with pytest.raises(DefinitionError, match=r"Flow: with_period.*'whom'.*Did you mean 'who'\?"):
        with_period("a:{whom}")(reactor(work=step(Bare)))
    with pytest.raises(DefinitionError, match=r"step 'work' of Flow: with_lock.*'whom'.*no such input.*'who'"):
        reactor(work=step(Bare, coordination=[with_lock("a:{whom}")]))
    with pytest.raises(DefinitionError, match=r"step 'work' of Flow: with_lock.*'whom'.*no such argument.*'who'"):
        reactor(work=step()(with_lock("a:{whom}")(lambda who: who)))


def test_declare_where_it_means_nothing_is_refused() -> None:
    for target in (3, int, "text", None):
        with pytest.raises(DefinitionError, match="with_lock was put on"):
            FIVE["lock"]()(target)
    for base in (Step, Reactor):
        with pytest.raises(DefinitionError, match="subclass"):
            FIVE["lock"]()(base)
    with pytest.raises(DefinitionError, match=r"Flow\.work has a with_\* and is no step; put @step"):
        reactor(work=FIVE["lock"]()(lambda who: who))
    with pytest.raises(DefinitionError, match=r"Flow\.work is a with_lock\(\.\.\.\) by itself"):
        reactor(work=with_lock(lambda who: who))
    with pytest.raises(DefinitionError, match="coordination takes with_lock"):
        step(Bare, coordination=["acct"])  # type: ignore[list-item]
    with pytest.raises(DefinitionError, match="format string"):
        with_lock(Bare)


def test_declare_values_as_written() -> None:
    assert with_lock("a", "b", ttl=30, max_wait=600).declaration == LockDeclaration(
        keys=("a", "b"),  # type: ignore[arg-type]
        ttl=30.0,
        rollback_wait=30.0,
        max_wait=600.0,
    )
    assert with_semaphore("a", limit=3).declaration == SemaphoreDeclaration(key="a", limit=3)  # type: ignore[arg-type]
    limited = with_rate_limit("a", limits={"minute": 100, "second": 3, 0.5: 2}).declaration
    assert isinstance(limited, RateLimitDeclaration)
    assert limited.windows == ((2, 0.5), (3, 1.0), (100, 60.0))
    assert limited.algorithm == "fixed_window"
    assert with_rate_limit("a", limit=3, period=dt.timedelta(hours=1)).declaration == RateLimitDeclaration(
        key=limited.key, windows=((3, 3600.0),)
    )
    named = with_rate_limit(name="stripe").declaration
    assert isinstance(named, RateLimitDeclaration)
    assert (named.name, named.keys, named.windows, named.algorithm) == ("stripe", (), (), None)
    berlin = with_period("a", every="month", timezone=zoneinfo.ZoneInfo("Europe/Berlin")).declaration
    assert isinstance(berlin, PeriodDeclaration)
    assert (berlin.every, berlin.timezone) == ("month", "Europe/Berlin")
    ordered = with_ordered_lock("a").declaration
    assert isinstance(ordered, OrderedLockDeclaration)
    assert (ordered.strict, ordered.poison_pill_timeout, ordered.ttl) == (True, 600.0, 86400.0)


def test_declare_durations_as_timedelta_too() -> None:
    lock = with_lock("a", ttl=dt.timedelta(minutes=2), wait=dt.timedelta(seconds=1)).declaration
    assert isinstance(lock, LockDeclaration)
    assert (lock.ttl, lock.wait, lock.rollback_wait) == (120.0, 1.0, 120.0)


def bad(make: Callable[..., Any], words: str, *args: Any, **options: Any) -> Any:
    text = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in options.items())])
    return pytest.param(make, args, options, words, id=f"{make.__name__}({text})")


INFINITE = float("inf")


@pytest.mark.parametrize(
    ("make", "args", "options", "words"),
    [
        bad(with_lock, "at least one key"),
        bad(with_lock, "ttl must be a number of seconds", "a", ttl=0),
        bad(with_lock, "None would never", "a", ttl=None),
        bad(with_lock, "at least 0.1", "a", ttl=-1),
        bad(with_lock, "at least 0.1", "a", ttl=0.05),
        bad(with_lock, "this is bool", "a", ttl=True),
        bad(with_lock, "this is str", "a", ttl="60"),
        bad(with_lock, "this is inf", "a", ttl=INFINITE),
        bad(with_lock, "ten years", "a", ttl=1e12),
        bad(with_lock, "wait", "a", wait=-1),
        bad(with_lock, "wait", "a", wait=None),
        bad(with_lock, "auto_extend must be True or False", "a", auto_extend=1),
        bad(with_lock, "rollback_wait", "a", rollback_wait=-1),
        bad(with_lock, "max_wait", "a", max_wait=0),
        bad(with_lock, "Did you mean 'warn'", "a", on_lost="warning"),
        bad(with_lock, "'park', 'wait', 'fail', 'skip'", "a", on_contention="wiat"),
        bad(with_lock, "priority must be a whole number", "a", priority=1.5),
        bad(with_lock, "priority", "a", priority=True),
        bad(with_lock, "max_waiting", "a", max_waiting=0),
        bad(with_semaphore, "limit must be a whole number of at least 1", "a", limit=0),
        bad(with_semaphore, "limit", "a", limit=-1),
        bad(with_semaphore, "limit", "a", limit=1.5),
        bad(with_semaphore, "limit", "a", limit=True),
        bad(with_semaphore, "limit", "a", limit=None),
        bad(with_semaphore, "ttl", "a", limit=1, ttl=0),
        bad(with_semaphore, "rollback_wait", "a", limit=1, rollback_wait=None),
        bad(with_rate_limit, "exactly one", "a"),
        bad(with_rate_limit, "exactly one", "a", name="stripe", limit=1, period=1),
        bad(with_rate_limit, "exactly one", "a", name="stripe", limits={"second": 1}),
        bad(with_rate_limit, "exactly one", "a", limit=1, period=1, limits={"second": 1}),
        bad(with_rate_limit, "go together", "a", limit=1),
        bad(with_rate_limit, "go together", "a", period=1),
        bad(with_rate_limit, "needs a key", limit=1, period=1),
        bad(with_rate_limit, "limit must be a whole number", "a", limit=0, period=1),
        bad(with_rate_limit, "limits\\['second'\\] must be", "a", limits={"second": 0}),
        bad(with_rate_limit, "names no window", "a", limits={}),
        bad(with_rate_limit, "must map windows", "a", limits=[3]),
        bad(with_rate_limit, "Did you mean 'minute'", "a", limits={"minutes": 1}),
        bad(with_rate_limit, "twice", "a", limits={"minute": 1, 60: 2}),
        bad(with_rate_limit, "period", "a", limit=1, period=0),
        bad(with_rate_limit, "Did you mean 'fixed_window'", "a", limit=1, period=1, algorithm="fixed_windows"),
        bad(with_rate_limit, "RATE_LIMITS", name="stripe", algorithm="fixed_window"),
        bad(with_rate_limit, "name", name=""),
        bad(with_period, "must be one of minute, hour, day, week, month, year", "a", every="fortnight"),
        bad(with_period, "Did you mean 'day'", "a", every="days"),
        bad(with_period, "every", "a", every=0),
        bad(with_period, "every", "a", every=None),
        bad(with_period, "Did you mean 'Europe/Berlin'", "a", timezone="Europe/Berlim"),
        bad(with_period, "timezone", "a", timezone=2),
        bad(with_period, "timezone", "a", timezone="../etc"),
        bad(with_ordered_lock, "strict must be True or False", "a", strict="yes"),
        bad(with_ordered_lock, "poison_pill_timeout", "a", poison_pill_timeout=0),
        bad(with_ordered_lock, "ttl", "a", ttl=0),
        bad(with_ordered_lock, "must not be shorter than poison_pill_timeout", "a", ttl=10),
    ],
)
def test_declare_bad_options_raise_at_import_naming_decorator_option_and_range(
    make: Any, args: Any, options: Any, words: str
) -> None:
    with pytest.raises(DefinitionError, match=words) as caught:
        make(*args, **options)
    assert str(caught.value).startswith(make.__name__)
