"""`trainyard validate`: the data and model of a job document, before it is submitted."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from app.cli.client.documents.assignments import Assignment, set_option
from app.cli.client.documents.data_report import inspected, is_script, show_report, unchecked
from app.cli.client.submit import code_option, completed, is_refusal, project_option, read_document, refuse_other_tools
from app.cli.connection import local_option, server
from app.cli.output import json_option, print_json
from config.environment import client_tokens
from trainyard.client import Client
from trainyard.records import DataReport


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@set_option
@code_option
@project_option
@local_option
@json_option
def validate(*, file: Path, assignments: Sequence[Assignment], code: Path | None, project: str, as_json: bool) -> None:
    """Read the data and the tokenizer that the job document FILE names; exit code 1 if there are errors.

    FILE is JSON or YAML; - reads standard input. With --code the whole document is checked with that code, as
    `submit --dry-run` does; nothing is uploaded.
    """
    document = completed(read_document(file, "job document", see="docs/reference/job-document.md"), assignments)
    refuse_other_tools(document, file)
    if code is not None:
        with server(project) as client:
            report = _with_code(client, document, code)
    elif is_script(document) and not document.get("data_config"):
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
        if is_script(document) and code is None:
            click.echo("To check the script and its packages: name its directory by --code, or submit --dry-run")
    if not report["valid"]:
        sys.exit(1)


def _with_code(client: Client, document: dict[str, Any], directory: Path) -> DataReport:
    """The report on the data, with what a dry run of the document says about its code and all the rest."""
    from app.cli.client.code import upload_code  # noqa: PLC0415 – slow to import, and only --code needs it

    left_out = list(unchecked(document))
    upload_code(client, directory, document, is_dry=True)
    said = client.dry_run(document, tokens=client_tokens())["warnings"]
    report = inspected(client, document, client_tokens()) or _nothing_to_read()
    refused = [each for each in said if is_refusal(each)]
    return {
        **report,
        "valid": report["valid"] and not refused,
        "errors": [*({"message": each} for each in refused), *report["errors"]],
        "warnings": [*(each for each in said if each not in refused), *report["warnings"]],
        "left_out": [*left_out, *report["left_out"]],
    }


def _nothing_to_read() -> DataReport:
    left_out = ["the job is a script and names no data"]
    return {"valid": True, "errors": [], "warnings": [], "left_out": left_out, "sources": []}
