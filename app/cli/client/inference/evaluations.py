"""The group `trainyard eval`: benchmarks of models, their results, and comparisons on the same samples."""

from itertools import islice
from typing import Any

import click

from app.cli.choice import SuggestingChoice
from app.cli.client.inference import results
from app.cli.client.inference.run import run
from app.cli.connection import server
from app.cli.handles import JobHandle, job_id_of
from app.cli.output import duration, full_option, json_option, print_fields, print_json, print_table, short_id
from app.cli.row_handles import evaluation_argument, evaluation_id_of, evaluations_argument
from app.cli.text_options import checked_text
from app.domain.lifecycle.states import JobState
from trainyard.records import Evaluation

LONGEST_REASON = 1000


@click.group("eval")
def evaluations() -> None:
    """Measure models on benchmarks: what trainings made, their checkpoints, or any other model."""


evaluations.add_command(run)


@evaluations.command("list")
@click.option("--job", "handle", type=JobHandle(), help="Only evaluations of this job's models.")
@click.option(
    "--status", multiple=True, type=SuggestingChoice([str(state) for state in JobState], case_sensitive=False)
)
@click.option("--project", default="", help="Only evaluations of this project.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@full_option
@json_option
def list_evaluations(
    *, handle: str | None, status: tuple[str, ...], project: str, limit: int, full: bool, as_json: bool
) -> None:
    """List evaluations, newest first."""
    with server() as client:
        job_id = job_id_of(client, handle) if handle is not None else ""
        found = list(islice(client.evaluations.list(status=status, job_id=job_id, project=project), limit))
    if as_json:
        print_json({"evaluations": found})
        return
    rows = [
        (
            *(short_id(each["evaluation_id"], full=full), each["name"], results.model(each)),
            *(each["step"], each["status"], results.summary(each)),
        )
        for each in found
    ]
    print_table(("id", "name", "model", "step", "status", "results"), rows, empty="no evaluations")


@evaluations.command()
@evaluation_argument
@json_option
def show(evaluation_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Show an evaluation: its model and what was measured."""
    with server() as client:
        found = client.evaluations.get(evaluation_id)
    if as_json:
        print_json(found)
        return
    print_fields(_fields(found))
    click.echo()
    results.print_results(found["results"])
    results.print_verdicts(found["verdicts"])


@evaluations.command()
@evaluations_argument
@click.option(
    "--baseline", default="", callback=evaluation_id_of, help="The one to compare the others with; default: the first."
)
@json_option
def compare(evaluation_ids: tuple[str, ...], baseline: str, as_json: bool) -> None:  # noqa: FBT001
    """Compare evaluations on the samples that they share: differences with 95 % intervals."""
    with server() as client:
        found = client.evaluations.compare(evaluation_ids, baseline=baseline)
    if as_json:
        print_json(found)
    else:
        results.print_comparison(found, {})


def _fields(found: Evaluation) -> dict[str, Any]:
    return {
        "id": found["evaluation_id"],
        "name": found["name"],
        "project": found["project"],
        "model": results.model(found),
        "step": found["step"],
        "status": found["status"],
        "passed": results.passed(found),
        "reason": found["status_reason"],
        "waits because": found["pending_reason"],
        "error": f"{found['error_type']}: {found['error_message']}" if found["error_type"] else "",
        "elapsed": duration(found["elapsed_seconds"]),
        "created": f"{found['created_at']} by {found['created_by_name'] or found['created_by']}",
    }


@evaluations.command()
@evaluation_argument
@click.option("--reason", default="", callback=checked_text(LONGEST_REASON), help="Recorded in its history.")
def cancel(evaluation_id: str, reason: str) -> None:
    """Cancel EVALUATION_ID."""
    with server() as client:
        found = client.evaluations.cancel(evaluation_id, reason=reason)
    click.echo(f"{evaluation_id} {found['status']}")


@evaluations.command()
@evaluation_argument
def delete(evaluation_id: str) -> None:
    """Delete the ended EVALUATION_ID with its files."""
    with server() as client:
        client.evaluations.delete(evaluation_id)
    click.echo(f"{evaluation_id} deleted")
