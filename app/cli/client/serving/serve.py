"""`trainyard serve`: a model behind a name, and the first lines to ask it."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from app.cli.choice import SuggestingChoice
from app.cli.client.documents.assignments import Assignment, set_option_like
from app.cli.client.inference.requests import model_of, with_whole_id
from app.cli.client.serving import facts
from app.cli.client.submit import completed, project_option, read_document, show_plan, warn
from app.cli.client.watch import EXIT_NOT_COMPLETED, poll_to_end
from app.cli.connection import server
from app.cli.output import json_option, print_json
from app.cli.resources import resource_option
from app.domain.names import NAME, NAME_RULE
from app.domain.serving.document import TASKS
from config.environment import client_tokens
from trainyard.client import Client
from trainyard.records import Service

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True)
MOST_FAILURES = 3


def _name(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value and not NAME.fullmatch(value):
        raise click.BadParameter(f"{value!r:.150} is not a name of a service: {NAME_RULE}")
    return value


@click.command()
@click.argument("model", required=False)
@click.option("--name", default="", callback=_name, help="What requests call it.")
@click.option("--file", type=_FILE, help="A service in JSON or YAML; options replace its parts.")
@set_option_like("limits.max_output_tokens=512")
@click.option(
    "--task", type=SuggestingChoice(TASKS), help="generate: chat and completions; embed: embeddings; score: rerank."
)
@click.option("--min", "least", type=click.IntRange(min=0), help="Replicas that always run; default 1.")
@click.option("--max", "most", type=click.IntRange(min=1), help="Most replicas; default as many as --min.")
@resource_option
@project_option
@click.option("--dry-run", is_flag=True, help="Check everything and show where a replica could run.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it answers.")
@json_option
def serve(model: str | None, *, project: str, dry_run: bool, no_wait: bool, as_json: bool, **options: Any) -> None:
    """Serve MODEL: a job, JOB@best, JOB@CHECKPOINT, a model's id, directory or URI.

    Waits until it answers; exit code 3 when it does not. Without MODEL the one that --file names is served. JOB is a
    whole id, @last, or job:HANDLE with a name or the end of an id. ${NAME} in a value of the file stands for a variable
    of the environment.
    """
    document = _document(model, **options)
    with server(project) as client:
        if model is not None:
            document["model"] = with_whole_id(client, document["model"])
        if dry_run:
            show_plan(client.services.dry_run(document, tokens=client_tokens()), as_json=as_json)
            return
        created = client.services.create(document, tokens=client_tokens())
        warn(created["warnings"])
        if not as_json:
            click.echo(f"{created['name']} {created['service_id']}")
        waits = not no_wait and document["replicas"]["min"] > 0
        found = _wait(client, created["service_id"]) if waits else client.services.get(created["service_id"])
        if as_json:
            print_json(found)
        elif found["answering"] or not waits:
            click.echo(facts.example(client.url, found))
        if waits and not found["answering"]:
            click.echo(facts.why_not(found), err=True)
            sys.exit(EXIT_NOT_COMPLETED)


def _document(
    model: str | None,
    *,
    name: str,
    file: Path | None,
    assignments: Sequence[Assignment],
    task: str | None,
    resources: dict[str, Any],
    **bounds: int | None,
) -> dict[str, Any]:
    document = read_document(file, "document of a service", see="examples/services/") if file else {}
    document = completed(document, assignments)
    if model is not None and document.get("model"):
        raise click.UsageError("the file names a model, too; leave MODEL or that of the file out")
    if model is None and not document.get("model"):
        raise click.UsageError(
            "name a MODEL: a job's id, @last or job:NAME, each with @best or @CHECKPOINT behind it, or a model's id, "
            "directory or URI"
        )
    if not name and not document.get("name"):
        raise click.UsageError("name the service with --name")
    found = {**document, **({"model": model_of(model)} if model is not None else {})}
    found |= {"name": name} if name else {}
    found |= {"task": task} if task else {}
    if resources:
        found["resource_config"] = {**(found.get("resource_config") or {}), **resources}
    return {**found, "replicas": _replicas(found.get("replicas") or {}, **bounds)}


def _replicas(stored: dict[str, Any], least: int | None, most: int | None) -> dict[str, Any]:
    """Unless the file or an option says something else, one replica that always runs."""
    found = {"min": 1, **stored, **({"min": least} if least is not None else {})}
    if most is not None:
        return {**found, "max": most}
    return found if "max" in found else {**found, "max": max(1, found["min"])}


class _Progress:
    """One line for each new reason to wait."""

    def __init__(self) -> None:
        self._said = ""

    def show(self, service: Service) -> None:
        if not service["answering"] and (text := facts.waits_for(service)) != self._said:
            self._said = text
            self.say(text)

    def say(self, text: str) -> None:
        click.echo(f"{time.strftime('%H:%M:%S')}  {text}", err=True)

    def close(self) -> None:
        """Nothing is drawn that would have to be cleared."""


def _wait(client: Client, service_id: str) -> Service:
    """The service once it answers, or once waiting longer is of no use. Ctrl-C ends this process."""

    def is_over(service: Service) -> bool:
        return service["answering"] > 0 or service["status"] != "ACTIVE" or service["failures"] >= MOST_FAILURES

    try:
        return poll_to_end(
            lambda patience: client.services.get(service_id, patience=patience), _Progress(), is_over, what="service"
        )
    except KeyboardInterrupt:
        click.echo(
            f"\n{service_id} continues to start. See it: trainyard services show {service_id} · end it: trainyard "
            f"services delete {service_id}",
            err=True,
        )
        sys.exit(1)
