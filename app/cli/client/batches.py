"""`trainyard batches`: files of requests to models, answered by jobs, over HTTP."""

import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import click

from app.cli.choice import SuggestingChoice
from app.cli.client.submit import project_option, read_document
from app.cli.connection import server
from app.cli.output import full_option, json_option, print_fields, print_json, print_table, short_id, unix_time
from app.cli.row_handles import batch_argument, batch_to_stop_argument
from app.domain.openai_paths import OPENAI_ENDPOINTS
from trainyard.client import Client
from trainyard.records import RequestBatch

NOT_COMPLETED = 3  # exit code
_COLUMNS = ("id", "status", "requests", "completed", "failed", "model", "created", "expires")


def _pairs(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if any(not name or not equals for name, equals, _ in pairs):
        raise click.BadParameter("say NAME=VALUE")
    return {name: value for name, _, value in pairs}


@click.group()
def batches() -> None:
    """Have the requests of a file answered by jobs. A request is a line with custom_id, method, url and body."""


@batches.command()
@click.argument("file")
@click.option(
    "--endpoint",
    type=SuggestingChoice(OPENAI_ENDPOINTS),
    default=OPENAI_ENDPOINTS[0],
    show_default=True,
    help="Their url.",
)
@click.option("--window", default="24h", show_default=True, help="After so many hours what is not answered expires.")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", callback=_pairs, help="A pair that the batch keeps.")
@click.option("--expires-hours", type=click.IntRange(1, 720), help="Delete the answers after so many hours.")
@click.option(
    "--parts",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="JSON or YAML with resource_config, scheduling_config or output of the jobs that answer.",
)
@click.option("--wait", "waits", is_flag=True, help="Wait for its end; exit code 3 unless it completes.")
@project_option
@json_option
def create(*, file: str, waits: bool, project: str, as_json: bool, **options: Any) -> None:
    """Create a batch and print its id. FILE is uploaded, or the id of a file that is."""
    expires_hours, parts = options["expires_hours"], options["parts"]
    with server(project) as client:
        made = client.batches.create(
            _uploaded(client, file),
            options["endpoint"],
            window=options["window"],
            metadata=options["metadata"] or None,
            output_expires_seconds=expires_hours * 3600 if expires_hours else None,
            parts=read_document(parts) if parts else None,
        )
        if waits:
            if not as_json:
                click.echo(made["id"])
            _show_end(client.batches.wait(made["id"]), as_json=as_json)
            return
    print_json(made) if as_json else click.echo(made["id"])


@batches.command(name="list")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many, newest first.")
@full_option
@project_option
@json_option
def list_batches(*, limit: int, full: bool, project: str, as_json: bool) -> None:
    """List batches, newest first."""
    with server(project) as client:
        found = list(islice(client.batches.list(), limit))
    if as_json:
        print_json(found)
        return
    rows = [(short_id(each["id"], full=full), *_row(each)[1:]) for each in found]
    print_table(_COLUMNS, rows, empty="no batches; create one with trainyard batches create FILE")


@batches.command()
@batch_argument
@click.option("--wait", "waits", is_flag=True, help="Wait for its end; exit code 3 unless it completes.")
@project_option
@json_option
def show(batch_id: str, waits: bool, project: str, as_json: bool) -> None:  # noqa: FBT001
    """Show BATCH_ID: its state, counts, jobs and files, and why it has failed."""
    with server(project) as client:
        found = client.batches.wait(batch_id) if waits else client.batches.get(batch_id)
    if waits:
        _show_end(found, as_json=as_json)
    else:
        _show(found, as_json=as_json)


@batches.command()
@batch_to_stop_argument
@project_option
@json_option
def cancel(batch_id: str, project: str, as_json: bool) -> None:  # noqa: FBT001
    """Cancel BATCH_ID; what is answered until then stays."""
    with server(project) as client:
        found = client.batches.cancel(batch_id)
    print_json(found) if as_json else click.echo(f"{found['id']} {found['status']}")


@batches.command()
@batch_argument
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="A folder.  [default: one named BATCH_ID, here]"
)
@project_option
@json_option
def download(batch_id: str, out: Path | None, project: str, as_json: bool) -> None:  # noqa: FBT001
    """Save output.jsonl and errors.jsonl of a batch that has ended. A broken download is resumed by the next one."""
    with server(project) as client:
        found = client.batches.get(batch_id)
        folder = out or Path(Path(found["id"]).name)
        try:
            saved = client.batches.download(batch_id, folder)
        except OSError as error:
            raise click.ClickException(f"cannot save {folder}: {error.strerror}") from error
    if not saved:
        raise click.ClickException(f"{batch_id} is {found['status']} and has no answers")
    if as_json:
        print_json({name: str(path) for name, path in saved.items()})
        return
    for path in saved.values():
        click.echo(path)


def _uploaded(client: Client, file: str) -> str:
    """The id of the file, which is uploaded if it is here."""
    if Path(file).is_file():
        return client.files.put(file, "batch")["id"]
    if not file.startswith("file-"):
        raise click.ClickException(f"no file {file}")
    return file


def _show_end(found: RequestBatch, *, as_json: bool) -> None:
    _show(found, as_json=as_json)
    if found["status"] != "completed":
        sys.exit(NOT_COMPLETED)


def _show(found: RequestBatch, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    usage, more = found["usage"], found["trainyard"]
    print_fields(
        {
            **dict(zip(_COLUMNS, _row(found), strict=True)),
            "endpoint": found["endpoint"],
            "input": found["input_file_id"],
            "answers": found["output_file_id"],
            "errors": found["error_file_id"],
            "tokens": f"{usage['input_tokens']} read, {usage['output_tokens']} written",
            "waits": more.get("pending_reason"),
            "jobs": ", ".join(more.get("jobs", {}).values()),
        }
    )
    for problem in (found["errors"] or {}).get("data", ()):
        click.echo(_problem(problem))


def _problem(problem: Mapping[str, Any]) -> str:
    places = [f"line {problem['line']}" if problem.get("line") else "", problem.get("param") or ""]
    return ": ".join(filter(None, [*places, problem["message"]]))


def _row(found: RequestBatch) -> tuple[object, ...]:
    counts = found["request_counts"]
    return (
        found["id"],
        found["status"],
        counts["total"],
        counts["completed"],
        counts["failed"],
        found["model"],
        unix_time(found["created_at"]),
        unix_time(found["expires_at"]),
    )
