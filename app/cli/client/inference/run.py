"""`trainyard eval run`: measures a model, and another one beside it to compare with."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from app.cli.client.documents.assignments import Assignment, set_option_like
from app.cli.client.inference import requests, results
from app.cli.client.submit import completed, project_option, read_document, show_inspected_plan, warn, would_fail
from app.cli.client.watch import EXIT_NOT_COMPLETED, follow_to_end
from app.cli.connection import server
from app.cli.output import json_option, print_json, print_json_line
from app.cli.resources import resource_option
from config.environment import client_tokens
from trainyard.client import Client
from trainyard.records import CreatedEvaluation, DryRun

EXIT_NOT_PASSED = 4
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True)
Document = dict[str, Any]


@click.command()
@click.argument("model", required=False)
@click.option("-b", "--benchmark", "benchmarks", multiple=True, help="NAME or NAME:DATASET; repeatable.")
@click.option("--file", type=_FILE, help="An evaluation in JSON or YAML; benchmarks of -b are added to its own.")
@set_option_like("benchmarks.0.num_samples=100")
@click.option("-n", "--num-samples", type=click.IntRange(min=1), help="Of each -b only the first so many records.")
@click.option("-p", "--parameter", "parameters", multiple=True, help="KEY=VALUE, a parameter of each -b; repeatable.")
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="METRIC>=VALUE",
    help="What MODEL has to reach, or METRIC<=VALUE, in quotes; repeatable. With --watch, exit code 4 if it does not.",
)
@click.option("--against", help="A model to measure, too, and to compare with; `base`: the one that MODEL began with.")
@click.option("--name", help="Name of the evaluation.")
@click.option("--seed", type=click.IntRange(min=0), help="Random seed of sampled answers.")
@click.option("--dry-run", is_flag=True, help="Validate the evaluation and show the placement plan without measuring.")
@click.option(
    "--watch",
    "watches",
    is_flag=True,
    help="Follow the evaluation to its end; exit code 3 unless it completes, 4 where it misses a requirement.",
)
@resource_option
@project_option
@json_option
def run(
    model: str | None, against: str | None, project: str, *, dry_run: bool, watches: bool, as_json: bool, **options: Any
) -> None:
    """Measure MODEL: a job, JOB@best, JOB@latest, JOB@CHECKPOINT, service:NAME, or a model's id, directory or URI.

    Without MODEL the one that --file names is measured. JOB is a whole id, @last, or job:HANDLE with a name or the end
    of an id. ${NAME} in a value of the file stands for a variable of the environment.
    """
    document = requests.with_model(_document(**options), model)
    with server(project) as client:
        if model is not None:
            document["model"] = requests.with_whole_id(client, document["model"])
        documents = [document, _other(client, document, against)] if against else [document]
        if dry_run:
            _show_plans([_plan(client, each, inspect=True) for each in documents], as_json=as_json)
        created = _created_both(client, *documents) if against else [_created(client, document)]
        ids = [each["evaluation_id"] for each in created]
        if watches:
            sys.exit(_watch(client, ids, ["model", against or ""], as_json=as_json))
    if as_json:
        print_json({"evaluations": created})
    else:
        _say(ids)


def _document(
    *,
    benchmarks: tuple[str, ...],
    file: Path | None,
    assignments: Sequence[Assignment],
    parameters: tuple[str, ...],
    required: tuple[str, ...],
    resources: dict[str, Any],
    num_samples: int | None,
    **fields: Any,
) -> Document:
    """The request without its model."""
    document = read_document(file, "document of an evaluation", see="examples/inference/") if file else {}
    document = completed(document, assignments)
    if not benchmarks and (parameters or num_samples):
        raise click.UsageError("-n and -p are for benchmarks of -b; name one, or write them into the file")
    given = dict(map(requests.parameter_of, parameters))
    more = {**({"parameters": given} if given else {}), **({"num_samples": num_samples} if num_samples else {})}
    asked = [{**requests.benchmark_of(text), **more} for text in benchmarks]
    document["benchmarks"] = [*(document.get("benchmarks") or []), *asked]
    if not document["benchmarks"]:
        raise click.UsageError("name what to measure: -b NAME, -b NAME:DATASET, or --file FILE")
    if required:
        document["require"] = [*(document.get("require") or []), *map(requests.requirement_of, required)]
    if resources:
        document["resource_config"] = {**(document.get("resource_config") or {}), **resources}
    return {**document, **{name: value for name, value in fields.items() if value is not None}}


def _created(client: Client, document: Document) -> CreatedEvaluation:
    created = client.evaluations.create(document, tokens=client_tokens())
    warn(created["warnings"])
    return created


def _plan(client: Client, document: Document, *, inspect: bool = False) -> DryRun:
    return client.evaluations.dry_run(document, tokens=client_tokens(), inspect=inspect)


def _show_plans(plans: Sequence[DryRun], *, as_json: bool) -> NoReturn:
    """Exit code 1 where one of them would fail."""
    if as_json and len(plans) > 1:
        print_json({"evaluations": plans})
    else:
        for plan in plans:
            show_inspected_plan(plan, as_json=as_json)
    sys.exit(int(any(map(would_fail, plans))))


def _created_both(client: Client, document: Document, other: Document) -> list[CreatedEvaluation]:
    """The evaluations of both models; the second measures what the first one does. Neither is made unless both can."""
    for each in (document, other):
        _plan(client, each)
    first = _created(client, document)
    measured = client.evaluations.get(first["evaluation_id"])["benchmarks"]
    return [first, _created(client, {**other, "benchmarks": _with_parameters(document["benchmarks"], measured)})]


def _other(client: Client, document: Document, against: str) -> Document:
    """The request for the model to compare with, which is asked in the same way."""
    job_id = document["model"].get("job_id")
    job = client.get(job_id).data if job_id else {}
    if against == requests.BASE and not job:
        raise click.UsageError("--against base: MODEL is no job, so that it has no base model; name the other model")
    if against == requests.BASE:
        other = requests.base_of(job)
    else:
        other = requests.with_whole_id(client, requests.model_of(against))
    asked = {name: value for name, value in document.items() if name != "require"}  # which is about MODEL
    return {**(requests.as_trained(job) if job else {}), **asked, "model": other}


def _with_parameters(asked: Sequence[Document], measured: Sequence[Mapping[str, Any]]) -> list[Document]:
    """What was asked for, with the parameters that the server has taken from the training of the first model."""
    return [{**one, "parameters": each["parameters"]} for one, each in zip(asked, measured, strict=True)]


def _watch(client: Client, ids: Sequence[str], models: Sequence[str], *, as_json: bool) -> int:
    """Follow each to its end, print results and differences; the exit code."""
    jobs = [follow_to_end(client, each, as_json=as_json) for each in ids]
    has_completed = all(job.status == "COMPLETED" for job in jobs)
    if not (has_completed or as_json):
        return EXIT_NOT_COMPLETED
    compares = has_completed and len(ids) > 1
    compared = client.evaluations.compare(ids, baseline=ids[1]) if compares else None
    found = [client.evaluations.get(each) for each in ids]
    if as_json:
        print_json_line({"evaluations": found, "comparison": compared})
    elif compared is not None:
        results.print_comparison(compared, dict(zip(ids, models, strict=True)))
    else:
        results.print_results(found[0]["results"])
    if not as_json:
        results.print_verdicts(found[0]["verdicts"])
    if not has_completed:
        return EXIT_NOT_COMPLETED
    return EXIT_NOT_PASSED if found[0]["passed"] is False else 0


def _say(ids: Sequence[str]) -> None:
    for each in ids:
        click.echo(each)
    follow, compare = f"trainyard watch {ids[0]}", f"trainyard eval compare {' '.join(reversed(ids))}"
    click.echo(f"Follow it with: {follow}" if len(ids) == 1 else f"Once they completed: {compare}", err=True)
