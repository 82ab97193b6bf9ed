"""Writes the parts of docs/ that tables in the code decide: ``python -m scripts.generated_docs`` (or ``make docs``).

A generated part stands between ``<!-- generated: name -->`` and ``<!-- end -->``; a test fails when it is out of date.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from app.domain.batches.events import BatchEventType
from app.domain.errors import ERROR_TYPES
from app.domain.evaluations.catalog import BENCHMARKS
from app.domain.evaluations.judging import PARAMETERS as OF_JUDGES
from app.domain.evaluations.parameters import BenchmarkParameter
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.retry_policy import describe as describe_recovery
from app.domain.lifecycle.retry_policy import may_retry
from app.domain.lifecycle.states import HELD, TERMINAL, TRANSITIONS, JobState
from app.domain.nodes.limits import KEYS
from app.domain.serving.events import ServiceEventType
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.hyperparameters.parsing import Hyperparameter
from app.domain.sweeps.events import SweepEventType
from config.environment import CLIENT_VARIABLES
from config.settings import settings_table
from scripts import command_tables, field_tables, memory_tables
from scripts.document_fields import cell, fields_of

ROOT = Path(__file__).parent.parent
# Ways out of the normal course. They leave so many states that arrows would hide the course: the matrix has them.
WAYS_OUT = {JobState.QUEUED, JobState.PAUSED, JobState.CANCELLED, JobState.FAILED, JobState.PREEMPTED}


def lifecycle_diagram() -> str:
    """Mermaid: the normal course, and without the ways out."""
    lines = ["```mermaid", "stateDiagram-v2", "    direction LR", f"    [*] --> {JobState.PENDING}"]
    lines += [f"    {before} --> {after}" for before, after in _steps() if _is_normal_course(before, after)]
    lines += [f"    {state} --> [*]" for state in JobState if state in TERMINAL and state not in WAYS_OUT]
    return "\n".join([*lines, "```"])


def transition_matrix() -> str:
    """Every allowed step: rows are before, columns after."""
    columns = [state for state in JobState if state != JobState.PENDING]
    lines = ["| from \\ to | " + " | ".join(columns) + " |", "|---|" + ":-:|" * len(columns)]
    for before in JobState:
        marks = ["●" if after in TRANSITIONS[before] else "" for after in columns]
        lines.append(f"| **{before}** | " + " | ".join(marks) + " |")
    return "\n".join(lines)


def state_groups() -> str:
    """The groups that the code asks for, derived from the table."""
    groups = {
        "Terminal: nothing leaves them": TERMINAL,
        "Held: the job has a lease, devices and a supervisor": HELD,
        "At rest: nothing has to be stopped": frozenset(JobState) - HELD - TERMINAL,
    }
    return "\n".join(f"- {meaning}: {_in_order(states)}." for meaning, states in groups.items())


def settings() -> str:
    """Every setting with its default and meaning."""
    rows = [f"| `{name}` | {_code(default)} | {meaning} |" for name, default, meaning in settings_table()]
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows])


def node_limits() -> str:
    """Every key of the table [jobs] of node.toml."""
    rows = [f"| `{name}` | {key.rule} | {_code(key.default)} | {key.meaning} |" for name, key in KEYS.items()]
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows])


def client_variables() -> str:
    return ", ".join(f"`{name}`" for name in sorted(CLIENT_VARIABLES))


def error_types() -> str:
    """Every cause that a failed job may name."""
    rows = [f"| `{name}` | {kind.meaning} | {kind.what_to_do} |" for name, kind in ERROR_TYPES.items()]
    return "\n".join(["| `error_type` | meaning | what to do |", "|---|---|---|", *rows])


def recovery_table() -> str:
    """What is done about every cause, without a person."""
    rows = [f"| `{name}` | {describe_recovery(name)} |" for name in sorted(ERROR_TYPES, key=lambda n: not may_retry(n))]
    return "\n".join(["| cause | what is done |", "|---|---|", *rows])


def event_names() -> str:
    """The kinds of events, and the states, that a webhook may subscribe to."""
    named = {
        "kinds": EventType,
        "kinds of sweeps": SweepEventType,
        "kinds of services": ServiceEventType,
        "kinds of batches": BatchEventType,
        "states": JobState,
    }
    return "\n".join(f"- {what}: {', '.join(f'`{name}`' for name in names)}" for what, names in named.items())


def training_hyperparameters() -> str:
    """What every built-in trainer knows, then what each type of training knows besides, and with which frameworks."""
    tables = parsing.TABLES
    common = [item for item in next(iter(tables.values())) if all(item in table for table in tables.values())]
    sections: dict[str, list[str]] = {}
    for name in dict.fromkeys(training_type for _, training_type in tables):
        of_type = {framework: table for (framework, other), table in tables.items() if other == name}
        sections.setdefault(_rows_of_type(of_type, common), []).append(name)
    parts = [f"## Every training type\n\n{_hyperparameter_table([(item, '') for item in common])}"]
    parts += [f"## {' and '.join(names)}\n\n{rows}" for rows, names in sections.items()]
    return "\n\n".join(parts)


def _rows_of_type(tables: Mapping[str, Sequence[Hyperparameter]], common: Collection[Hyperparameter]) -> str:
    """The table of one training type; a row that not all of its frameworks have in this form names those that do."""
    known: dict[Hyperparameter, list[str]] = {}
    for framework, table in tables.items():
        for item in table:
            if item not in common:
                known.setdefault(item, []).append(framework)
    names = list(dict.fromkeys(item.name for item in known))
    rows = sorted(known.items(), key=lambda row: names.index(row[0].name))
    return _hyperparameter_table(
        [(item, "" if len(frameworks) == len(tables) else ", ".join(frameworks)) for item, frameworks in rows]
    )


def benchmark_types() -> str:
    """Every benchmark: what it measures, the columns of its records, and its metrics."""
    lines = ["| name | measures | records have | metrics |", "|---|---|---|---|"]
    for kind in BENCHMARKS.values():
        shown = kind.describe()
        metrics = ", ".join(f"`{metric.name}`" for metric in kind.metrics) or ", ".join(shown["metrics"])
        columns = ", ".join(kind.columns)
        lines.append(f"| `{shown['name']}` | {cell(kind.meaning)} | {columns} | {metrics} |")
    return "\n".join(lines)


def benchmark_parameters() -> str:
    """Every parameter of benchmarks, with those that have it; equal ones share a row. A judge's have their own page."""
    users: dict[BenchmarkParameter, list[str]] = {}
    for kind in BENCHMARKS.values():
        for parameter in kind.parameters.values():
            if parameter not in OF_JUDGES:
                users.setdefault(parameter, []).append(kind.name)
    everywhere = [kind.name for kind in BENCHMARKS.values() if kind.generates]
    rows = [
        f"| `{each.name}` | {each.expected} | {_json(each.default)} | {cell(each.meaning)} | "
        f"{'all that generate' if names == everywhere else ', '.join(names)} |"
        for each, names in users.items()
    ]
    return "\n".join(["| parameter | value | default | meaning | of |", "|---|---|---|---|---|", *rows])


def parameters_of_judges() -> str:
    """Those that the benchmark `judge` has besides its sampling."""
    rows = (f"| `{each.name}` | {each.expected} | {_json(each.default)} | {cell(each.meaning)} |" for each in OF_JUDGES)
    return "\n".join(["| parameter | value | default | meaning |", "|---|---|---|---|", *rows])


def _fields(*sections: str) -> dict[str, Callable[[], str]]:
    return {name: partial(fields_of, name) for name in sections}


GENERATED: dict[str, dict[str, Callable[[], str]]] = {
    "docs/reference/lifecycle.md": {"diagram": lifecycle_diagram, "matrix": transition_matrix, "groups": state_groups},
    "docs/reference/settings.md": {"settings": settings, "client variables": client_variables},
    "docs/reference/cli.md": {"commands": command_tables.commands},
    "docs/reference/node-toml.md": {"node limits": node_limits},
    "docs/reference/api.md": {"error types": error_types},
    "docs/explanation/recovery.md": {"recovery": recovery_table},
    "docs/how-to/code-and-packages.md": _fields("packages"),
    "docs/how-to/webhooks.md": {"event names": event_names},
    "docs/reference/compatibility.md": {"counts": field_tables.counts, "sections": field_tables.sections},
    "docs/reference/hyperparameters.md": {"hyperparameters": training_hyperparameters},
    "docs/reference/job-document.md": _fields(
        *("training_config", "base_model", "framework", "distributed", "evaluation", "on_divergence"), "halt_at"
    ),
    "docs/reference/data.md": _fields("data_config", "sources", "filters", "sampling", "preprocess"),
    "docs/reference/resources.md": _fields("resource_config", "scheduling_config"),
    "docs/reference/roles.md": _fields(
        "tasks", "resource_config of a role", "training_config of a role", "affinity of a role"
    ),
    "docs/reference/memory.md": {"model types": memory_tables.model_types, "recipes": memory_tables.recipes},
    "docs/reference/output.md": _fields("output_config", "checkpoint", "tracking"),
    "docs/reference/inference.md": _fields("inference", "model", "records", "task", "results", "on_error"),
    "docs/reference/evaluations.md": {
        **_fields("evaluation of a model", "benchmark", "data of an evaluation", "requirement"),
        **_fields("planned evaluation"),
        "benchmarks": benchmark_types,
        "parameters": benchmark_parameters,
    },
    "docs/reference/interactive.md": _fields("interactive_config", "ports", "readiness_probe", "new session"),
    "docs/reference/judge.md": {"parameters of the judge": parameters_of_judges},
    "docs/reference/sweeps.md": _fields(
        *("sweep", "objective", "constraints", "method", "early_stopping", "budget", "on_failed_trials"),
        *("warm_start", "keep"),
    ),
}


def render(path: str, text: str) -> str:
    """``text`` with each of its generated parts regenerated; raises when a part has no place in it."""
    for name, make in GENERATED[path].items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{path} has no place for the generated part '{name}'")
        text = pattern.sub(lambda match, make=make: f"{match[1]}{make()}\n{match[2]}", text)  # type: ignore[misc]
    return text


def main() -> None:
    for path in GENERATED:
        file = ROOT / path
        before = file.read_text()
        after = render(path, before)
        if after != before:
            file.write_text(after)
            print(f"{path}: written")


def _steps() -> list[tuple[JobState, JobState]]:
    return [(before, after) for before in JobState for after in JobState if after in TRANSITIONS[before]]


def _is_normal_course(before: JobState, after: JobState) -> bool:
    enters_queue = after == JobState.QUEUED and before in (JobState.PENDING, JobState.PAUSED)
    return enters_queue or after not in WAYS_OUT


def _in_order(states: frozenset[JobState]) -> str:
    return ", ".join(state for state in JobState if state in states)


def _hyperparameter_table(items: Sequence[tuple[Hyperparameter, str]]) -> str:
    """Each hyperparameter with the frameworks that it is limited to, if it is."""
    rows = [
        f"| `{item.name}` | {_value(item)} | {_default(item)} | {f'{only}: ' if only else ''}{cell(_meaning(item))} |"
        for item, only in items
    ]
    return "\n".join(["| name | value | default | meaning |", "|---|---|---|---|", *rows])


def _value(item: Hyperparameter) -> str:
    # Steps are counted in 32 bits, a limit that no training reaches.
    return cell(item.expected.removesuffix(f" and <= {parsing.LARGEST_WHOLE}"))


def _meaning(item: Hyperparameter) -> str:
    if item.only_with is None:
        return item.meaning
    other, values = item.only_with
    choices = next(each.choices for table in parsing.TABLES.values() for each in table if each.name == other)
    others = [choice for choice in choices if choice not in values]
    is_shorter = 0 < len(others) < len(values)
    said = (
        f"not with {other} {', '.join(others)}"
        if is_shorter
        else f"only with {other} {', '.join(map(parsing.display, values))}"
    )
    return f"{item.meaning}; {said}"


def _default(item: Hyperparameter) -> str:
    return _code(parsing.display(item.default))


def _json(value: object) -> str:
    return "–" if value is None else f"`{json.dumps(value)}`"


def _code(value: str) -> str:
    return f"`{value}`" if value else "–"


if __name__ == "__main__":
    main()
