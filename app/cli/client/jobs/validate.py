"""`trainyard validate`: the data and model of a job document, before it is submitted."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from app.cli.client.documents.assignments import Assignment, set_option
from app.cli.client.documents.data_report import is_script, show_report
from app.cli.client.submit import completed, project_option, read_document, refuse_other_tools
from app.cli.connection import local_option, server
from app.cli.output import json_option, print_json
from config.settings import client_tokens
from trainyard.records import DataReport


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@set_option
@project_option
@local_option
@json_option
def validate(*, file: Path, assignments: Sequence[Assignment], project: str, as_json: bool) -> None:
    """Read the data and the tokenizer that the job document FILE names; exit code 1 if there are errors.

    FILE is JSON or YAML; - reads standard input.
    """
    document = completed(read_document(file, "job document", see="docs/reference/job-document.md"), assignments)
    refuse_other_tools(document, file)
    if is_script(document) and not document.get("data_config"):
        report = _nothing_to_read()
    elif not isinstance(document.get("data_config"), dict):
        raise click.ClickException(f"{file} has no object data_config; only a job of framework CUSTOM needs no data")
    else:
        training = document.get("training_config")
        with server(project) as client:
            report = client.data.validate(document["data_config"], training, tokens=client_tokens())
    if as_json:
        print_json(report)
    else:
        show_report(report)
        if is_script(document):
            click.echo("To check the script and its packages: trainyard submit --dry-run")
    if not report["valid"]:
        sys.exit(1)


def _nothing_to_read() -> DataReport:
    left_out = ["the job is a script and names no data"]
    return {"valid": True, "errors": [], "warnings": [], "left_out": left_out, "sources": []}
