"""`trainyard submit`: submits the job described by a file and prints its id."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from app.cli.client.documents.assignments import Assignment, Command, assign, set_option
from app.cli.client.documents.local_files import ways_to_send
from app.cli.client.documents.variables import expand
from app.cli.client.session_options import interactive_options, set_interactive
from app.cli.client.watch import watch_to_end
from app.cli.connection import server
from app.cli.output import json_option, print_fields, print_json, print_table
from app.domain.names import NAME, NAME_RULE
from config.environment import client_environment, client_tokens
from trainyard.client import ApiError, Client
from trainyard.records import DryRun

# Of configurations of axolotl and LLaMA-Factory: what names their model.
OF_OTHER_TOOLS = ("base_model", "model_name_or_path")
_REFUSED = "admission would fail it"  # so begins a warning of a dry run about what can't be there


def _project(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value and not NAME.fullmatch(value):
        raise click.BadParameter(f"{value!r:.150} is not a project name: {NAME_RULE}")
    return value


project_option = click.option(
    "--project",
    default="",
    callback=_project,
    is_eager=True,  # handles that are resolved while the command line is read are of this project
    help="The project to submit to, for a key with access to several.",
)
code_option = click.option(
    "--code",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A directory that the job runs from; uploaded unless the server has the same content.",
)
_dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Validate the job and its data, and show the plan, without submitting it."
)
_watch_option = click.option(
    "--watch", "watches", is_flag=True, help="Follow the job to its end; exit code 3 unless it completes."
)


def submitting(command: Command) -> Command:
    """The options of a command that submits a job: ``dry_run``, ``watches``, ``project`` and ``as_json``."""
    return _dry_run_option(_watch_option(project_option(json_option(command))))


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@set_option
@code_option
@interactive_options
@submitting
def submit(
    *,
    file: Path,
    assignments: Sequence[Assignment],
    code: Path | None,
    dry_run: bool,
    watches: bool,
    project: str,
    as_json: bool,
    **interactive: Any,
) -> None:
    """Submit the job described by FILE, in JSON or YAML; - reads standard input.

    ${NAME} in its values stands for a variable of the environment, except in custom_command and custom_arguments.
    """
    document = completed(read_document(file), assignments)
    refuse_other_tools(document, file)
    set_interactive(document, **interactive)
    with server(project) as client:
        if code is not None:
            from app.cli.client.code import upload_code  # noqa: PLC0415 – slow to import, and only --code needs it

            upload_code(client, code, document, is_dry=dry_run)
        if dry_run:
            show_dry_run(client, document, as_json=as_json)
            return
        submit_document(client, document, watches=watches, as_json=as_json)


def submit_document(client: Client, document: Mapping[str, Any], *, watches: bool, as_json: bool) -> None:
    """Submit the job, and print its id or follow it to its end."""
    try:
        submitted = client.submit(document, tokens=client_tokens())
    except ApiError as error:
        show_ways_to_send(document, str(error))
        raise
    warn(submitted.warnings)
    if watches:
        if not as_json:
            click.echo(f"Submitted {submitted.job_id}")
        watch_to_end(client, submitted.job_id, as_json=as_json)
    elif as_json:
        print_json(vars(submitted))
    else:
        click.echo(submitted.job_id)
        if client_environment()[0]:  # a server elsewhere, which sees no files of this machine
            show_ways_to_send(document)
        click.echo(f"Follow it with: trainyard watch {submitted.job_id}", err=True)


def show_dry_run(client: Client, document: Mapping[str, Any], *, as_json: bool) -> None:
    """The plan, and what an inspection finds in the data; exit code 1 if it finds errors."""
    from app.cli.client.documents.data_report import inspected, show_report, unchecked  # noqa: PLC0415 – slow to import

    try:
        answer = client.dry_run(document, tokens=client_tokens())
        report = inspected(client, document, client_tokens())
    except ApiError as error:
        show_ways_to_send(document, str(error))
        raise
    refusals = [each for each in answer["warnings"] if is_refusal(each)]
    if as_json:
        print_json({**answer, **({"data": report} if report is not None else {})})
    else:
        show_plan(answer, as_json=False)
        for part in unchecked(document):
            click.echo(f"Not checked: {part}", err=True)
        if report is not None:
            click.echo()
            show_report(report)
    errors = report["errors"] if report is not None else []
    show_ways_to_send(document, " ".join([*refusals, *(each["message"] for each in errors), " "]))
    if refusals or (report is not None and not report["valid"]):
        sys.exit(1)


def is_refusal(warning: str) -> bool:
    """Whether a warning of a dry run says that the job would fail before it starts."""
    return warning.startswith(_REFUSED)


def show_ways_to_send(document: Mapping[str, Any], said: str = "") -> None:
    """How to upload the files of this machine that the document, and the error if there is one, name."""
    if click.get_current_context().params.get("as_json"):  # there an error is one JSON line
        return
    for way in ways_to_send(document, said=said):
        click.echo(f"Hint: {way}", err=True)


def refuse_other_tools(document: Mapping[str, Any], file: Path) -> None:
    """Raises ClickException for a configuration of axolotl or LLaMA-Factory."""
    if not any(name.endswith("_config") for name in document) and any(key in document for key in OF_OTHER_TOOLS):
        raise click.ClickException(
            f"{file} is no job document, but a configuration of axolotl or LLaMA-Factory; convert it with "
            f"`trainyard import {file}`, and with --submit to submit it at once"
        )


def show_plan(answer: DryRun, *, as_json: bool) -> None:
    """Print the answer to a dry run."""
    if as_json:
        print_json(answer)
        return
    plan: dict[str, Any] = dict(answer["plan"])
    candidates = answer["plan"]["candidate_nodes"]
    if memory := plan.get("memory"):
        plan["memory"] = memory["message"]
    print_fields({name: value for name, value in plan.items() if name != "candidate_nodes"})
    rows = [(node["name"], "yes" if node["fits_now"] else "no", node["reason"]) for node in candidates]
    print_table(("node", "fits now", "why not"), rows, empty="no node could hold it")
    warn(answer["warnings"])


def show_inspected_plan(answer: DryRun, *, as_json: bool) -> None:
    """Print the answer to a dry run, and what was found in the data."""
    from app.cli.client.documents.data_report import show_report  # noqa: PLC0415 – slow to import

    show_plan(answer, as_json=as_json)
    report = answer.get("data")
    if report is not None and not as_json:
        click.echo()
        show_report(report)


def would_fail(answer: DryRun) -> bool:
    """Whether the job would end before it starts, by its inputs or by what was found in the data."""
    return any(map(is_refusal, answer["warnings"])) or not answer.get("data", {"valid": True})["valid"]


def warn(warnings: Sequence[str]) -> None:
    """Print what has no effect."""
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)


def completed(document: dict[str, Any], assignments: Sequence[Assignment]) -> dict[str, Any]:
    """The document with the values of ``--set``, and with the variables of the environment in it replaced."""
    assign(document, assignments)
    try:
        return expand(document)
    except RecursionError as error:
        raise click.ClickException("the document is nested too deeply") from error


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
    except RecursionError as error:
        raise click.ClickException(f"{file} is not a {kind}: it is nested too deeply") from error
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
