"""`trainyard submit`: submits the job described by a file and prints its id."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from app.cli.client.connection import server
from app.cli.client.watch import watch_to_end
from app.cli.output import json_option, print_fields, print_json, print_table
from app.domain.names import NAME, NAME_RULE
from config.settings import client_tokens
from trainyard.records import DryRun


def _project(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value and not NAME.fullmatch(value):
        raise click.BadParameter(f"{value!r:.150} is not a project name: {NAME_RULE}")
    return value


project_option = click.option(
    "--project", default="", callback=_project, help="The project to submit to, for a key with access to several."
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Validate the job and show the placement plan without submitting it.")
@click.option("--watch", "watches", is_flag=True, help="Follow the job to its end; exit code 3 unless it completes.")
@project_option
@json_option
def submit(file: Path, dry_run: bool, watches: bool, project: str, as_json: bool) -> None:  # noqa: FBT001
    """Submit the job described by FILE, in JSON or YAML; - reads standard input."""
    document = read_document(file)
    with server(project) as client:
        if dry_run:
            show_plan(client.dry_run(document, tokens=client_tokens()), as_json=as_json)
            return
        submitted = client.submit(document, tokens=client_tokens())
        warn(submitted.warnings)
        if watches:
            if not as_json:
                click.echo(f"Submitted {submitted.job_id}")
            watch_to_end(client, submitted.job_id, as_json=as_json)
        elif as_json:
            print_json(vars(submitted))
        else:
            click.echo(submitted.job_id)
            click.echo(f"Follow it with: trainyard watch {submitted.job_id}", err=True)


def show_plan(answer: DryRun, *, as_json: bool) -> None:
    """Print the answer to a dry run."""
    if as_json:
        print_json(answer)
        return
    plan = dict(answer["plan"])
    candidates = answer["plan"]["candidate_nodes"]
    print_fields({name: value for name, value in plan.items() if name != "candidate_nodes"})
    rows = [(node["name"], "yes" if node["fits_now"] else "no", node["reason"]) for node in candidates]
    print_table(("node", "fits now", "why not"), rows, empty="no node could hold it")
    warn(answer["warnings"])


def warn(warnings: Sequence[str]) -> None:
    """Print what has no effect."""
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)


def read_document(
    file: Path, kind: str = "job document", *, see: str = "examples/ for job documents"
) -> dict[str, Any]:
    """The mapping in the file. Raises ClickException that names the problem."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        is_json = text.lstrip().startswith(("{", "["))
        document = json.loads(text, object_pairs_hook=_without_duplicates) if is_json else _yaml(text)
        json.dumps(document, allow_nan=False)
    except (ValueError, TypeError) as error:  # TypeError: JSON has no YAML dates
        raise click.ClickException(f"{file} is not a {kind}: {error}") from error
    if not isinstance(document, dict):
        raise click.ClickException(f"{file} is not a mapping of fields; see {see}")
    return document


def _yaml(text: str) -> object:
    import yaml  # noqa: PLC0415 – most files are JSON

    class Loader(yaml.SafeLoader):
        """The safe loader, which also rejects duplicate keys, as for JSON."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 – theirs
            _without_duplicates([(self.construct_object(key, deep=True), None) for key, _ in node.value])
            return dict(super().construct_mapping(node, deep))

    try:
        return yaml.load(text, Loader)  # noqa: S506 – a subclass of the safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _without_duplicates(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The pairs as a dict. Raises ValueError for a duplicate key, which the server could no longer detect."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} appears twice in one object")
    return found
