"""`trainyard submit`: a file in, a job id out."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from app.cli.connection import server
from app.cli.output import json_option, print_json
from app.cli.watch import watch_to_end


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@click.option("--watch", "watches", is_flag=True, help="Follow the job to its end; exit code 3 unless it completes.")
@json_option
def submit(file: Path, watches: bool, as_json: bool) -> None:  # noqa: FBT001
    """Hand in the job that FILE describes, in JSON or YAML; - reads standard input."""
    document = read_document(file)
    with server() as client:
        submitted = client.submit(document)
        if watches:
            if not as_json:
                click.echo(f"Submitted {submitted.job_id}")
            watch_to_end(client, submitted.job_id, as_json=as_json)
        elif as_json:
            print_json(vars(submitted))
        else:
            click.echo(submitted.job_id)
            click.echo(f"Follow it with: trainyard watch {submitted.job_id}", err=True)


def read_document(file: Path) -> dict[str, Any]:
    """The one mapping that the file holds. Raises ClickException that says what is wrong with it."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        document = json.loads(text) if text.lstrip().startswith(("{", "[")) else _yaml(text)
        json.dumps(document, allow_nan=False)
    except (ValueError, TypeError) as error:  # TypeError: a YAML date is no JSON
        raise click.ClickException(f"{file} is no job document: {error}") from error
    if not isinstance(document, dict):
        raise click.ClickException(f"{file} holds no mapping of fields; a job is one, see examples/")
    return document


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 – most files are JSON

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
