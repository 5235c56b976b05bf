"""A reactor's graph as text: Mermaid, Graphviz, or plain for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reactor_coord.operations.views import CoordinationView, ReactorOutline, StepOutline


def mermaid(reactor: ReactorOutline) -> str:
    """A Mermaid flowchart; a coordinated step is drawn as a hexagon and names its keys."""
    ids = {step.name: f"s{index}" for index, step in enumerate(reactor.steps)}
    lines = ["flowchart LR", f"  %% {_one_line(reactor.name)}"]
    for step in reactor.steps:
        label = "<br/>".join(_mermaid_text(part) for part in _label(step))
        opening, closing = ('{{"', '"}}') if step.coordination else ('["', '"]')
        lines.append(f"  {ids[step.name]}{opening}{label}{closing}")
    lines += [
        f"  {ids[source]} --> {ids[step.name]}" for step in reactor.steps for source in step.after if source in ids
    ]
    return "\n".join(lines) + "\n"


def dot(reactor: ReactorOutline) -> str:
    """A Graphviz digraph."""
    lines = [f"digraph {_dot_text(reactor.label)} {{", "  rankdir=LR;", '  node [shape=box, style="rounded"];']
    for step in reactor.steps:
        shape = ", shape=hexagon" if step.coordination else ""
        text = "\\n".join(_dot_escaped(part) for part in _label(step))
        lines.append(f'  {_dot_text(step.name)} [label="{text}"{shape}];')
    lines += [f"  {_dot_text(source)} -> {_dot_text(step.name)};" for step in reactor.steps for source in step.after]
    return "\n".join([*lines, "}"]) + "\n"


def text(reactor: ReactorOutline) -> str:
    """Steps by depth, indented, with what each waits for and coordinates."""
    lines = [f"{reactor.label}  ({reactor.name})"]
    lines += [f"  {words}, for the whole reactor" for words in map(coordination_words, reactor.coordination)]
    width = max((len(step.name) + 2 * step.level for step in reactor.steps), default=0)
    for step in reactor.steps:
        name = f"{'  ' * step.level}{step.name}".ljust(width)
        after = f"  after {', '.join(step.after)}" if step.after else ""
        keys = "".join(f"  [{coordination_words(each)}]" for each in step.coordination)
        lines.append(f"  {name}  {step.runs}{after}{keys}")
    return "\n".join(lines) + "\n"


FORMATS: Mapping[str, Callable[[ReactorOutline], str]] = {"mermaid": mermaid, "dot": dot, "text": text}


def coordination_words(each: CoordinationView) -> str:
    """`lock acct:{account_id}`."""
    return f"{each.primitive} {each.key or each.declared}"


def _label(step: StepOutline) -> list[str]:
    kind = [step.kind] if step.kind != "step" else []
    return [step.name, *kind, *(coordination_words(each) for each in step.coordination)]


def _mermaid_text(value: str) -> str:
    escaped = value.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    return escaped.replace("{", "#123;").replace("}", "#125;")


def _dot_text(value: str) -> str:
    return f'"{_dot_escaped(value)}"'


def _dot_escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _one_line(value: str) -> str:
    return " ".join(value.split())
