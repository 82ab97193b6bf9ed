"""Commands for single trials of a sweep: show one, add one with chosen values, end one early, exempt one."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import click

from app.cli.client.sweeps import table
from app.cli.connection import server
from app.cli.output import json_option, print_fields, print_json, print_table
from app.cli.row_handles import sweep_argument
from trainyard.client import Client
from trainyard.records import Sweep, Trial, TrialReport, Value

_NUMBER = click.IntRange(min=0)


@click.command()
@sweep_argument
@click.argument("number", type=_NUMBER)
@json_option
def trial(sweep_id: str, number: int, as_json: bool) -> None:  # noqa: FBT001
    """Show trial NUMBER of SWEEP_ID: its values, results, and what was decided at each rung."""
    with server() as client:
        found = client.sweeps.trial(sweep_id, number)
        of = client.sweeps.get(sweep_id)
    if as_json:
        print_json(found)
        return
    print_fields(_fields(of, found))
    if found["reports"]:
        click.echo()
        _print_reports(of, found)


@click.command()
@sweep_argument
@click.argument("assignments", nargs=-1, required=True, metavar="NAME=VALUE…")
@json_option
def add(sweep_id: str, assignments: tuple[str, ...], as_json: bool) -> None:  # noqa: FBT001
    """Try these values of SWEEP_ID's parameters, too; the trial counts for the budget.

    Every parameter that is active with them needs one, by its name in the document: learning_rate=1e-4.
    """
    texts = _assigned(assignments)
    with server() as client:
        parameters = client.sweeps.get(sweep_id)["document"].get("parameters") or {}
        values = {name: _typed(text, parameters.get(name)) for name, text in texts.items()}
        found = client.sweeps.add_trial(sweep_id, values)
    if as_json:
        print_json(found)
    else:
        click.echo(f"trial {found['number']}: {found['job_id']}")


@click.command("stop-trial")
@sweep_argument
@click.argument("number", type=_NUMBER)
@json_option
def stop_trial(sweep_id: str, number: int, as_json: bool) -> None:  # noqa: FBT001
    """End the running trial NUMBER of SWEEP_ID early; what it has measured counts."""
    _request(lambda client: client.sweeps.stop_trial(sweep_id, number), "is being stopped", as_json=as_json)


@click.command()
@sweep_argument
@click.argument("number", type=_NUMBER)
@json_option
def promote(sweep_id: str, number: int, as_json: bool) -> None:  # noqa: FBT001
    """Exempt the running trial NUMBER of SWEEP_ID from early stopping."""
    _request(lambda client: client.sweeps.promote_trial(sweep_id, number), "is exempt", as_json=as_json)


def _request(send: Callable[[Client], Trial], done: str, *, as_json: bool) -> None:
    with server() as client:
        found = send(client)
    if as_json:
        print_json(found)
        return
    state = table.STATES.get(found["state"], found["state"].lower())
    click.echo(f"trial {found['number']} {done if found['state'] == 'RUNNING' else state}")


def _assigned(assignments: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        if not (name and separator):
            raise click.BadParameter(f"{assignment!r:.80} is no assignment; write NAME=VALUE")
        if name in found:
            raise click.BadParameter(f"{name} is given twice; leave one of them out")
        found[name] = text
    return found


def _typed(text: str, parameter: object) -> Value:
    """The value that a text stands for: one that the parameter lists, a number, true or false, or the text itself."""
    from app.domain.sweeps.documents import wire_text  # noqa: PLC0415 – slow to import

    plain: object = text
    with suppress(ValueError):
        plain = json.loads(text, parse_constant=str)
    for value in _listed(parameter):
        if text == wire_text(value) or (type(plain) in (int, float) and plain == value and not isinstance(value, bool)):
            return value
    return plain if isinstance(plain, bool | int | float) else text


def _listed(parameter: object) -> list[Value]:
    if isinstance(parameter, Mapping):
        return list(parameter.get("values") or ())
    return [] if parameter is None else [parameter]  # type: ignore[list-item]  # a constant of the document


def _fields(of: Sweep, found: Trial) -> dict[str, Any]:
    names, metrics = table.metrics(of), found["objectives"] or ()
    step = f"{found['step']} of {found['total_steps']}" if found["total_steps"] else found["step"]
    parent = found["forked_from"]
    return {
        "trial": f"{found['number']} of {of['sweep_id']}",
        "state": table.STATES.get(found["state"], found["state"].lower()),
        "reason": found["reason"],
        "values": {name: table.text(value) for name, value in found["values"].items()},
        **{name: table.number(value) for name, value in zip(names, metrics, strict=False)},
        "feasible": "" if found["is_feasible"] else "no: it breaks a constraint",
        "job": found["job_id"],
        "job status": found["job_status"],
        "waits for": ", ".join(f"{each['evaluation_id']} ({each['status']})" for each in found["waits_for"]),
        "step": step,
        "source": found["source"],
        "note": found["note"],
        "forked from": "" if parent is None else f"trial {parent}, which spared {found['steps_saved']} steps",
        "early stopping": "exempt" if found["promoted"] else "",
        "error": found["error_type"],
        "device seconds": found["device_seconds"],
        "created": found["created_at"],
        "finished": found["finished_at"],
    }


def _print_reports(of: Sweep, found: Trial) -> None:
    metric = (table.metrics(of) or ["value"])[0]
    rows = [
        (
            report["rung"],
            "not finite" if report["value"] is None else table.number(report["value"]),
            f"{report['rank']} of {report['compared']}",
            _decision(report),
            report["at"],
        )
        for report in found["reports"]
    ]
    print_table(("rung", metric, "rank", "decision", "at"), rows, empty="")


def _decision(report: TrialReport) -> str:
    if not report["is_decided"]:
        return "waits"
    return "continues" if report["continues"] else "ends"
