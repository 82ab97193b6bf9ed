"""`trainyard infer`: submits the batch or features job described by a file."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from app.cli.client.documents.assignments import Assignment, set_option_like
from app.cli.client.submit import completed, project_option, read_document, show_inspected_plan, warn, would_fail
from app.cli.client.watch import EXIT_NOT_COMPLETED, follow_to_end
from app.cli.connection import server
from app.cli.output import json_option, print_json
from config.environment import client_tokens
from trainyard.client import Client
from trainyard.records import InferenceJob


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@set_option_like("task.max_new_tokens=64")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Validate the job and its records, and show the placement plan, without submitting it.",
)
@click.option("--watch", "watches", is_flag=True, help="Follow the job to its end; exit code 3 unless it completes.")
@project_option
@json_option
def infer(
    *, file: Path, assignments: Sequence[Assignment], dry_run: bool, watches: bool, project: str, as_json: bool
) -> None:
    """Run a model over the records that FILE names, in JSON or YAML; - reads standard input.

    ${NAME} in its values stands for a variable of the environment.
    """
    document = read_document(file, "inference document", see="examples/inference/ for documents")
    document = completed(document, assignments)
    with server(project) as client:
        if dry_run:
            plan = client.inference.dry_run(document, tokens=client_tokens(), inspect=True)
            show_inspected_plan(plan, as_json=as_json)
            sys.exit(int(would_fail(plan)))
        created = client.inference.create(document, tokens=client_tokens())
        warn(created["warnings"])
        if watches:
            if not as_json:
                click.echo(f"Submitted {created['job_id']}")
            _watch(client, created["job_id"], as_json=as_json)
        elif as_json:
            print_json(created)
        else:
            click.echo(created["job_id"])
            click.echo(f"Follow it with: trainyard watch {created['job_id']}", err=True)


def _watch(client: Client, job_id: str, *, as_json: bool) -> None:
    job = follow_to_end(client, job_id, as_json=as_json)
    if not as_json:
        failed = _failed(client.inference.get(job_id))
        click.echo(failed, nl=bool(failed))
    sys.exit(0 if job.status == "COMPLETED" else EXIT_NOT_COMPLETED)


def _failed(found: InferenceJob) -> str:
    count, path = found["failed_records"], found["output"].get("path") or "its output"
    return f"{count:,} records have an error in place of a result; see column error of {path}" if count else ""
