"""`trainyard sweep change` and `fork`: other budgets, labels and parts of the document."""

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from app.cli.choice import SuggestingChoice
from app.cli.client.documents.assignments import Assignment, assign, set_option_like
from app.cli.client.submit import read_document, warn
from app.cli.client.sweeps.watch import watch_to_end
from app.cli.connection import server
from app.cli.output import json_option, print_json
from app.cli.row_handles import sweep_argument
from app.cli.text_options import pair
from app.domain.suggestions import did_you_mean
from trainyard.client import Client

Command = TypeVar("Command", bound=Callable[..., Any])

METHOD = "method"
# Parts of a fork that replace those of its sweep as a whole; of its budget only what is given differs.
WHOLE = ("parameters", "require", METHOD, "early_stopping", "labels")
FORKED = (*WHOLE, "budget", "name")
BOUNDS = {
    "max_trials": (int, "Most trials, also failed ones."),
    "max_device_hours": (float, "Devices × hours of all attempts."),
    "max_seconds": (float, "Since the first trial."),
    "target": (float, "No new trial once one is this good."),
    "patience": (int, "No new trial after so many completed ones without a better one."),
}


class _Parallel(click.ParamType[int | str]):
    name = "N|free"

    def convert(
        self,
        value: Any,  # noqa: ANN401 – click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int | str:
        from app.domain.sweeps.spec import FREE  # noqa: PLC0415 – slow to import

        if value == FREE or isinstance(value, int):
            return FREE if value == FREE else int(value)
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor {FREE}", param, ctx)


def _budget_options(command: Command) -> Command:
    """An option for each part of the budget, and one that removes each bound."""
    running = SuggestingChoice(("finish", "cancel"))
    command = click.option("--running", type=running, help="What becomes of running trials when it is used up.")(
        command
    )
    command = click.option("--parallel-trials", type=_Parallel(), help="Most trials at a time.")(command)
    for name, (kind, meaning) in reversed(BOUNDS.items()):
        flag = name.replace("_", "-")
        command = click.option(f"--no-{flag}", is_flag=True, help=f"Remove the bound --{flag}.")(command)
        command = click.option(f"--{flag}", type=kind, help=meaning)(command)
    return command


def _label_options(command: Command) -> Command:
    command = click.option("--no-labels", is_flag=True, help="Remove all labels.")(command)
    return click.option(
        "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Replace all labels; repeatable."
    )(command)


@click.command()
@sweep_argument
@_budget_options
@click.option("--priority", type=click.IntRange(0, 10), help="Of further trials, from 0 to 10, the most urgent.")
@_label_options
@json_option
def change(sweep_id: str, priority: int | None, *, as_json: bool, **options: Any) -> None:
    """Change the budget, priority or labels of SWEEP_ID; with a larger budget a completed one continues."""
    budget, labels = _budget(options), _labels(options)
    if not budget and labels is None and priority is None:
        raise click.UsageError("name at least one part to change, such as --max-trials 200")
    with server() as client:
        found = client.sweeps.change(sweep_id, budget=budget or None, priority=priority, labels=labels)
    print_json(found) if as_json else click.echo(f"{found['sweep_id']} {found['status']}")


@click.command()
@sweep_argument
@click.option("--name", default="", help="Default: the name and -fork.")
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="JSON or YAML with parts that replace those of the sweep: parameters, require, method, early_stopping, "
    "budget, labels, name; - reads standard input.",
)
@set_option_like("parameters.learning_rate.max=1e-3")
@_budget_options
@_label_options
@click.option("--watch", "watches", is_flag=True, help="Follow the fork to its end; exit code 3 unless it completes.")
@json_option
def fork(
    *,
    sweep_id: str,
    name: str,
    file: Path | None,
    assignments: Sequence[Assignment],
    watches: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Create a sweep of the same job and objective that knows what SWEEP_ID has found.

    --set changes a value within a part that is otherwise that of the file, or of the sweep; other options win.
    """
    changes = read_document(file, "part of a sweep document", see="docs/reference/sweeps.md") if file else {}
    budget, labels = _budget(options), _labels(options)
    _refuse_fixed(assignments)
    with server() as client:
        if assignments:
            _assign(client, sweep_id, changes, assignments)
        changes |= {"name": name} if name else {}
        changes |= {"labels": labels} if labels is not None else {}
        if budget:
            changes["budget"] = {**_object(changes, "budget"), **budget}
        created = client.sweeps.fork(sweep_id, **changes)
        warn(created["warnings"])
        if watches:
            if not as_json:
                click.echo(f"Created {created['sweep_id']}")
            watch_to_end(client, created["sweep_id"], as_json=as_json)
        elif as_json:
            print_json(created)
        else:
            click.echo(created["sweep_id"])
            click.echo(f"Follow it with: trainyard sweep watch {created['sweep_id']}", err=True)


def _refuse_fixed(assignments: Iterable[Assignment]) -> None:
    for path, _ in assignments:
        part = path.partition(".")[0]
        if part not in FORKED:
            raise click.UsageError(
                f"--set {path}: a fork has the {part} of its sweep{did_you_mean(part, FORKED)}; it may differ in "
                f"{', '.join(FORKED)}; for anything else create a new sweep with `trainyard sweep submit`"
            )


def _assign(client: Client, sweep_id: str, changes: dict[str, Any], assignments: Sequence[Assignment]) -> None:
    """Set the values in the changes, which get the parts of the sweep that are replaced as a whole."""
    parts = {path.partition(".")[0] for path, _ in assignments}
    if missing := [part for part in WHOLE if part in parts and part not in changes]:
        found = client.sweeps.get(sweep_id)
        known = {"labels": found["labels"], **found["document"]}
        changes |= {part: _as_sent(part, known[part]) for part in missing if known.get(part) is not None}
        if METHOD in missing:
            # Left to the server, which draws with another seed than the sweep's, unless --set names one.
            changes[METHOD].pop("seed", None)
    assign(changes, assignments)


def _as_sent(name: str, part: Any) -> Any:  # noqa: ANN401 – JSON
    """A part of the document that an answer shows, without what was left out of it."""
    if not isinstance(part, dict):
        return list(part)
    left_out = (None, 0) if name == "early_stopping" else (None,)  # without a rule its first and last rung are 0
    return {field: copy.deepcopy(value) for field, value in part.items() if value not in left_out}


def _object(changes: dict[str, Any], name: str) -> dict[str, Any]:
    found = changes.get(name) or {}
    if not isinstance(found, dict):
        raise click.UsageError(f"{name} of the file must be an object")
    return found


def _budget(options: dict[str, Any]) -> dict[str, Any]:
    """The parts that were given; None removes a bound."""
    found: dict[str, Any] = {}
    for name in BOUNDS:
        value, removes = options[name], options[f"no_{name}"]
        if removes and value is not None:
            flag = name.replace("_", "-")
            raise click.UsageError(f"--{flag} and --no-{flag} exclude each other")
        if removes or value is not None:
            found[name] = value
    others = {name: options[name] for name in ("parallel_trials", "running")}
    return {**found, **{name: value for name, value in others.items() if value is not None}}


def _labels(options: dict[str, Any]) -> dict[str, str] | None:
    """All labels, or None to leave them."""
    if options["labels"] and options["no_labels"]:
        raise click.UsageError("--label and --no-labels exclude each other")
    return dict(map(pair, options["labels"])) if options["labels"] or options["no_labels"] else None
