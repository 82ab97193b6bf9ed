"""The group `trainyard sweep`: lists, details, the best trials, replay, and the requests to a sweep."""

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import click

from app.cli.choice import SuggestingChoice
from app.cli.client.submit import warn
from app.cli.client.sweeps import table
from app.cli.client.sweeps.changes import change, fork
from app.cli.client.sweeps.importance import importance
from app.cli.client.sweeps.submit import submit
from app.cli.client.sweeps.trials import add, promote, stop_trial, trial
from app.cli.client.sweeps.watch import watch
from app.cli.connection import server
from app.cli.output import age, duration, full_option, json_option, print_fields, print_json, print_table, short_id
from app.cli.row_handles import sweep_argument
from app.cli.text_options import checked_text
from app.domain.errors import BadSpec
from app.domain.spec.secrets import MASK
from app.domain.sweeps.states import SweepState, TrialState
from config.environment import client_tokens
from trainyard.client import Client
from trainyard.records import BestTrial, Replay, Sweep, Trial

LONGEST_REASON = 1000
MOST_BEST = 100
DIFFERENT = 3  # 1 is an error, such as a server that does not answer


@click.group()
def sweep() -> None:
    """Search for hyperparameters: trials are ordinary jobs, and the best one is found."""


@sweep.command("list")
@click.option(
    "--status", multiple=True, type=SuggestingChoice([str(state) for state in SweepState], case_sensitive=False)
)
@click.option("--project", default="", help="Only sweeps of this project.")
@click.option("--name", default="", help="Only sweeps of this name.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@full_option
@json_option
def list_sweeps(*, status: tuple[str, ...], project: str, name: str, limit: int, full: bool, as_json: bool) -> None:
    """List sweeps, newest first."""
    with server() as client:
        found = list(islice(client.sweeps.list(status=status, project=project, name=name), limit))
    if as_json:
        print_json({"sweeps": found})
        return
    rows = [
        (
            short_id(each["sweep_id"], full=full),
            *(each["name"], each["project"], each["status"], table.method(each)),
            *_counts(each),
        )
        for each in found
    ]
    heads = ("id", "name", "project", "status", "method", "trials", "best", "device hours", "age")
    print_table(heads, rows, empty="no sweeps")


@sweep.command()
@sweep_argument
@json_option
def show(sweep_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Show a sweep: what varies, what counts, what was used and found."""
    with server() as client:
        found = client.sweeps.get(sweep_id)
    if as_json:
        print_json(found)
        return
    print_fields(_fields(found))
    varying = [(name, _range(raw)) for name, raw in (found["document"].get("parameters") or {}).items()]
    click.echo()
    print_table(("parameter", "values"), varying, empty="no parameters")


@sweep.command()
@sweep_argument
@click.option(
    "--state", multiple=True, type=SuggestingChoice([str(state) for state in TrialState], case_sensitive=False)
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@json_option
def trials(sweep_id: str, state: tuple[str, ...], limit: int, as_json: bool) -> None:  # noqa: FBT001
    """List the trials of SWEEP_ID with their values and results, by number."""
    with server() as client:
        found = client.sweeps.get(sweep_id)
        listed = list(islice(client.sweeps.trials(sweep_id, state=state), limit))
    if as_json:
        print_json({"trials": listed})
    else:
        _print_trials(found, listed, empty="no trials")


@sweep.command()
@sweep_argument
@click.option("--top", type=click.IntRange(1, MOST_BEST), default=1, show_default=True, help="Number of trials.")
@click.option("--submit", "submits", is_flag=True, help="Train the best one again, as a new job with its values.")
@click.option("--trial", type=int, help="With --submit: this one of the best trials; below 0: of the earlier results.")
@click.option("--all-data", is_flag=True, help="With --submit: train on the validation split, too, without evaluation.")
@json_option
def best(*, sweep_id: str, top: int, submits: bool, trial: int | None, all_data: bool, as_json: bool) -> None:
    """Show the best trials of SWEEP_ID; of several objectives those that no other trial surpasses."""
    if (trial is not None or all_data) and not submits:
        option = "--all-data changes" if all_data else "--trial chooses"
        raise click.UsageError(f"{option} what --submit trains again; give both")
    with server() as client:
        found = client.sweeps.get(sweep_id)
        is_front = len(table.metrics(found)) > 1
        wanted = MOST_BEST if is_front or trial is not None else 1 if submits else top
        listed = client.sweeps.best(sweep_id, top=wanted, document=submits or as_json)
        if submits:
            chosen = _chosen(listed, trial)
    if submits:
        _submit(found, chosen, all_data=all_data, as_json=as_json)
    elif as_json:
        print_json({"trials": listed})
    else:
        _print_trials(found, listed, empty="no trial has completed yet")


@sweep.command()
@sweep_argument
@click.option("--from", "first", type=click.IntRange(min=0), default=0, help="Number of the first trial.")
@click.option("--to", "last", type=click.IntRange(min=0), help="Number of the last trial; by default all.")
@json_option
def replay(sweep_id: str, first: int, last: int | None, as_json: bool) -> None:  # noqa: FBT001
    """Compute every suggestion and decision of SWEEP_ID again; exit code 3 if one differs from what is stored.

    Large sweeps are computed by several requests.
    """
    with server() as client:
        found = _replayed(client, sweep_id, first, last)
    if as_json:
        print_json(found)
    else:
        verdict = "all equal" if found["is_equal"] else f"{len(found['differences'])} differ"
        click.echo(f"{found['suggestions']} suggestions, {found['decisions']} decisions at rungs: {verdict}")
        heads = ("what", "#", "rung", "stored", "computed again")
        rows = [
            (each["what"], each["number"], each["rung"], each["stored"], each["replayed"])
            for each in found["differences"]
        ]
        if rows:
            print_table(heads, rows, empty="")
    sys.exit(0 if found["is_equal"] else DIFFERENT)


@sweep.command()
@sweep_argument
@click.option("--finish", is_flag=True, help="Let running trials end; by default they are saved and paused, too.")
@json_option
def pause(sweep_id: str, finish: bool, as_json: bool) -> None:  # noqa: FBT001
    """Make no new trials of SWEEP_ID until it is resumed."""
    _request(lambda client: client.sweeps.pause(sweep_id, trials="finish" if finish else "pause"), as_json=as_json)


@sweep.command()
@sweep_argument
@json_option
def resume(sweep_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Continue the paused SWEEP_ID, and its paused trials."""
    _request(lambda client: client.sweeps.resume(sweep_id), as_json=as_json)


@sweep.command()
@sweep_argument
@json_option
def stop(sweep_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Make no new trials of SWEEP_ID; it completes when the running ones have ended."""
    _request(lambda client: client.sweeps.stop(sweep_id), as_json=as_json)


@sweep.command()
@sweep_argument
@click.option("--reason", default="", callback=checked_text(LONGEST_REASON), help="Recorded in the sweep's history.")
@json_option
def cancel(sweep_id: str, reason: str, as_json: bool) -> None:  # noqa: FBT001
    """Cancel SWEEP_ID and its running trials."""
    _request(lambda client: client.sweeps.cancel(sweep_id, reason=reason), as_json=as_json)


@sweep.command()
@sweep_argument
@click.option("--jobs", is_flag=True, help="Also delete the jobs of its trials: checkpoints, models, logs.")
@click.option("--yes", is_flag=True, help="Skip the confirmation of --jobs.")
@json_option
def delete(sweep_id: str, jobs: bool, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Delete the ended SWEEP_ID and the records of its trials; their jobs stay unless --jobs is given."""
    with server() as client:
        if jobs and not yes:
            found = client.sweeps.get(sweep_id)
            what = f"{found['name']} and the jobs of its {found['trials']} trials with their checkpoints and models"
            click.confirm(f"Delete {what}?", abort=True, err=True)
        answer = client.sweeps.delete(sweep_id, jobs=jobs)
    if as_json:
        print_json({"sweep_id": sweep_id, "deleted": True, "jobs": answer["jobs"], "jobs_left": answer["jobs_left"]})
        return
    click.echo(f"{sweep_id} deleted, and {answer['jobs']} jobs" if jobs else f"{sweep_id} deleted")
    if answer["jobs_left"]:
        click.echo(f"The server is still deleting the files of {answer['jobs_left']} of them.", err=True)


for _command in (submit, watch, importance, trial, add, stop_trial, promote, change, fork):
    sweep.add_command(_command)


def _replayed(client: Client, sweep_id: str, first: int, last: int | None) -> Replay:
    """Of these trials, request after request."""
    found = _replayed_part(client, sweep_id, first, last)
    while (following := found.get("next_from")) is not None and (last is None or following <= last):
        more = _replayed_part(client, sweep_id, following, last)
        for name in ("suggestions", "decisions"):
            found[name] += more[name]
        found["differences"] += more["differences"]
        found["is_equal"] = found["is_equal"] and more["is_equal"]
        found["to"], found["next_from"] = more["to"], more["next_from"]
    return found


def _replayed_part(client: Client, sweep_id: str, first: int, last: int | None) -> Replay:
    """As many trials as one request computes in time, which only the server knows; none after the last one."""
    found = client.sweeps.replay(sweep_id, first=first)
    if last is not None and found["to"] is not None and found["to"] > last:
        return client.sweeps.replay(sweep_id, first=first, last=last)
    return found


def _request(send: Callable[[Client], Sweep], *, as_json: bool) -> None:
    with server() as client:
        found = send(client)
    print_json(found) if as_json else click.echo(f"{found['sweep_id']} {found['status']}")


def _counts(found: Sweep) -> tuple[object, ...]:
    most = (found["document"].get("budget") or {}).get("max_trials")
    trials_made = f"{found['trials']}/{most}" if most else found["trials"]
    return trials_made, table.best(found).removeprefix("best "), found["device_hours"], age(found["created_at"])


def _fields(found: Sweep) -> dict[str, Any]:
    document, result = found["document"], found["best"]
    return {
        "id": found["sweep_id"],
        "name": found["name"],
        "project": found["project"],
        "status": found["status"],
        "reason": found["status_reason"],
        "waits because": found["pending_reason"],
        "labels": found["labels"],
        "method": table.method(found),
        "objective": ", ".join(f"{each['goal']} {each['metric']}" for each in document.get("objective") or ()),
        "require": document.get("require"),
        "trials": found["trials"],
        "by state": {table.STATES[state]: count for state, count in found["trials_by_state"].items() if count},
        "best": f"{table.best(found).removeprefix('best ')}: {table.values_of(result['values'])}" if result else "",
        "best job": result["job_id"] if result else "",
        "device hours": found["device_hours"],
        "elapsed": duration(found["elapsed_seconds"]),
        "time left": f"about {table.about(found['eta_seconds'])}" if found["eta_seconds"] is not None else "",
        "next device hour": table.forecast(found).removeprefix("next device hour "),
        "created": f"{found['created_at']} by {found['created_by_name'] or found['created_by']}",
    }


def _range(raw: Any) -> str:  # noqa: ANN401 – a parameter of the document, or a constant
    if not isinstance(raw, dict):
        return table.text(raw)
    if raw.get("values"):
        words = ", ".join(map(table.text, raw["values"]))
    elif raw.get("type") == "bool":
        words = "false, true"
    else:
        words = f"{table.number(raw['min'])} to {table.number(raw['max'])}"
    words += f" in steps of {table.number(raw['step'])}" if raw.get("step") else ""
    words += ", log" if raw.get("scale") == "log" else ""
    conditions = [f"{name} is {' or '.join(map(table.text, of))}" for name, of in (raw.get("only_if") or {}).items()]
    return f"{words}, only if {' and '.join(conditions)}" if conditions else words


def _print_trials(found: Sweep, listed: "list[Trial] | list[BestTrial]", *, empty: str) -> None:
    rows = [(*table.row(found, each), each["job_id"]) for each in listed]
    print_table((*table.columns(found), "job"), rows, empty=empty)


def _chosen(listed: list[BestTrial], number: int | None) -> BestTrial:
    numbers = [each["number"] for each in listed]
    if not listed:
        raise click.ClickException("no trial has completed yet, so that there is no best one to submit")
    if number is None and len(listed) > 1:
        raise click.ClickException(f"no trial is best alone; choose one by --trial: {', '.join(map(str, numbers))}")
    if number is not None and number not in numbers:
        raise click.ClickException(f"trial {number} is not among the best; those are {', '.join(map(str, numbers))}")
    return listed[0] if number is None else listed[numbers.index(number)]


def _masked(part: object, path: str = "") -> Iterator[str]:
    """Dotted paths of secrets in a document."""
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, value in items:
        yield from _masked(value, f"{path}.{name}".lstrip("."))
    if part == MASK:
        yield path


def _submit(found: Sweep, chosen: BestTrial, *, all_data: bool, as_json: bool) -> None:
    """In the sweep's project, which need not be the key's own."""
    masked = list(_masked(chosen["document"]))
    if masked:
        raise click.ClickException(
            f"the job has secrets, which are not shown: {', '.join(masked)}; write its document to a file (--json), "
            "fill them in, and submit that"
        )
    document = chosen["document"] or {}
    if all_data:
        from app.domain.sweeps.documents import with_all_data  # noqa: PLC0415 – slow to import

        try:
            document = with_all_data(document)
        except BadSpec as error:
            raise click.ClickException(f"--all-data: {error.message}") from error
    with server(found["project"]) as client:
        submitted = client.submit(document, tokens=client_tokens())
    warn(submitted.warnings)
    if as_json:
        print_json(vars(submitted))
    else:
        click.echo(submitted.job_id)
        click.echo(f"Follow it with: trainyard watch {submitted.job_id}", err=True)
