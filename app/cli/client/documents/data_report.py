"""The report of an inspection of data and model, for people; and the inspection that a dry run asks for."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from app.cli.output import print_table
from app.domain.spec.frameworks.custom import CODE_DIR, SCRIPT
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.spec.locations.code import is_git
from trainyard.client import ApiError, Client
from trainyard.records import DataReport

_UNABLE = (501, 503)  # inspections are disabled here, or no coordinator has come to it


def inspected(client: Client, document: Mapping[str, Any], tokens: Mapping[str, str]) -> DataReport | None:
    """The report on the document's data and model; None for a document without data."""
    data = document.get("data_config")
    if not isinstance(data, dict) or not data.get("sources"):
        return None
    try:
        return client.data.validate(data, _without_program(document.get("training_config")), tokens=tokens)
    except ApiError as error:
        if error.status not in _UNABLE:
            raise
        return {"valid": True, "errors": [], "warnings": [], "left_out": [error.message], "sources": []}


def show_report(report: DataReport) -> None:
    """What was found, and what could not be inspected."""
    for error in report["errors"]:
        field = error.get("field")  # none where a file is at fault
        click.echo(f"Error: {field}: {error['message']}" if field else f"Error: {error['message']}", err=True)
    for warning in report["warnings"]:
        click.echo(f"Warning: {warning}", err=True)
    for part in report["left_out"]:
        click.echo(f"Not checked: {part}", err=True)
    heads = ("source", "location", "split", "format", "files", "records", "complete", "dropped")
    if report["sources"]:
        print_table(heads, map(_row, report["sources"]), empty="")
    for line in _lines(report):
        click.echo(line)
    count = len(report["errors"])
    bad = "1 error." if count == 1 else f"{count} errors."
    click.echo(_good(report) if report["valid"] else bad)


def unchecked(document: Mapping[str, Any]) -> Iterator[str]:
    """What a dry run leaves to the preflight of the job."""
    training = document.get("training_config")
    training = training if isinstance(training, dict) else {}
    framework = training.get("framework")
    code = framework.get(CODE_DIR) if isinstance(framework, dict) else None
    if training.get("packages"):
        yield "packages: whether their index has them is found out after submission"
    if isinstance(code, str) and is_git(code):
        yield "code: whether its repository has the commit is found out after submission"


def _good(report: DataReport) -> str:
    if not report["left_out"]:
        return "The data is valid."
    return "The data is valid, as far as it was checked." if report["sources"] else "No record of the data was checked."


def is_script(document: Mapping[str, Any]) -> bool:
    """Whether the document's job runs a script or a command of the user's."""
    training = document.get("training_config")
    framework = training.get("framework") if isinstance(training, dict) else None
    return isinstance(framework, dict) and framework.get("type") == CUSTOM


def _without_program(training: object) -> Any:  # noqa: ANN401 – JSON
    """A script and its code are not data, and in a dry run the code is not uploaded yet."""
    framework = training.get("framework") if isinstance(training, dict) else None
    if not isinstance(training, dict) or not isinstance(framework, dict) or framework.get("type") != CUSTOM:
        return training
    kept = {name: value for name, value in framework.items() if name not in (SCRIPT, CODE_DIR, "custom_arguments")}
    return {**training, "framework": {"custom_command": ["true"], **kept}}


def _row(source: dict[str, Any]) -> list[Any]:
    names = ("index", "location", "split", "format", "files", "records_read", "complete", "dropped")
    return [source.get(name) for name in names]


def _lines(report: DataReport) -> Iterator[str]:
    if lengths := report.get("lengths"):
        yield "Tokens of a record: " + ", ".join(f"{name} {value}" for name, value in lengths.items())
    if (share := report.get("truncated_share")) is not None:
        yield f"Truncated: {share:.1%}"
