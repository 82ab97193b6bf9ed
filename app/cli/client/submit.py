"""`trainyard submit`: a file in, a job id out."""

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
        raise click.BadParameter(f"{value!r:.150} is no name of a project: {NAME_RULE}")
    return value


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Check everything, show the plan, and submit nothing.")
@click.option("--watch", "watches", is_flag=True, help="Follow the job to its end; exit code 3 unless it completes.")
@click.option(
    "--project", default="", callback=_project, help="Whose job it becomes, for a key that sees several projects."
)
@json_option
def submit(file: Path, dry_run: bool, watches: bool, project: str, as_json: bool) -> None:  # noqa: FBT001
    """Hand in the job that FILE describes, in JSON or YAML; - reads standard input."""
    document = read_document(file)
    with server(project) as client:
        if dry_run:
            _show(client.dry_run(document, tokens=client_tokens()), as_json=as_json)
            return
        submitted = client.submit(document, tokens=client_tokens())
        _warn(submitted.warnings)
        if watches:
            if not as_json:
                click.echo(f"Submitted {submitted.job_id}")
            watch_to_end(client, submitted.job_id, as_json=as_json)
        elif as_json:
            print_json(vars(submitted))
        else:
            click.echo(submitted.job_id)
            click.echo(f"Follow it with: trainyard watch {submitted.job_id}", err=True)


def _show(answer: DryRun, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    plan = dict(answer["plan"])
    candidates = answer["plan"]["candidate_nodes"]
    print_fields({name: value for name, value in plan.items() if name != "candidate_nodes"})
    rows = [(node["name"], "yes" if node["fits_now"] else "no", node["reason"]) for node in candidates]
    print_table(("node", "fits now", "why not"), rows, empty="no node could hold it")
    _warn(answer["warnings"])


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)


def read_document(file: Path) -> dict[str, Any]:
    """The one mapping that the file holds. Raises ClickException that says what is wrong with it."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        is_json = text.lstrip().startswith(("{", "["))
        document = json.loads(text, object_pairs_hook=_without_repeats) if is_json else _yaml(text)
        json.dumps(document, allow_nan=False)
    except (ValueError, TypeError) as error:  # TypeError: a YAML date is no JSON
        raise click.ClickException(f"{file} is no job document: {error}") from error
    if not isinstance(document, dict):
        raise click.ClickException(f"{file} holds no mapping of fields; a job is one, see examples/")
    return document


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 – most files are JSON

    class Loader(yaml.SafeLoader):
        """The safe one, and a name that stands twice is an error as in JSON."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 – theirs
            _without_repeats([(self.construct_object(key, deep=True), None) for key, _ in node.value])
            return dict(super().construct_mapping(node, deep))

    try:
        return yaml.load(text, Loader)  # noqa: S506 – a subclass of the safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _without_repeats(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The server refuses a name that stands twice; a file must not get past that by being read here first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} appears twice in one object")
    return found
