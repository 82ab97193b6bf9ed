"""`trainyard import`: a configuration of axolotl or LLaMA-Factory as a job document."""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from app.cli.choice import SuggestingChoice
from app.cli.client.imports.draft import Imported
from app.cli.client.imports.keys import ConfigKeys, LeftOut, NotImported
from app.cli.client.submit import project_option, read_document, show_dry_run, submit_document
from app.cli.connection import server
from app.cli.output import json_option, print_json

TOOLS = {"axolotl": "app.cli.client.imports.axolotl", "llamafactory": "app.cli.client.imports.llama_factory"}
# A configuration of LLaMA-Factory has one of these; axolotl calls its model base_model.
_OF_LLAMA_FACTORY = ("model_name_or_path", "finetuning_type", "stage", "cutoff_len", "dataset_dir")


@click.command(name="import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--from", "tool", type=SuggestingChoice([*TOOLS]), help="Whose it is.  [default: detected by its keys]")
@click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, help="GPUs; both tools leave it out.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the document here.")
@click.option("--submit", "submits", is_flag=True, help="Submit it.")
@click.option("--dry-run", is_flag=True, help="Have the server validate it and show the placement plan.")
@project_option
@json_option
def import_(file: Path, output: Path | None, *, as_json: bool, **options: Any) -> None:
    """Convert a configuration of axolotl or LLaMA-Factory to a job document.

    Prints the document as YAML, and on standard error each key that is not carried over, with the reason. With --json
    both are in one object.
    """
    config = read_document(file, "configuration", see="the pages of axolotl or LLaMA-Factory")
    tool = options["tool"] or detected(config)
    try:
        found = imported(config, tool, file.parent, default_name=file.stem, gpus=options["gpus"])
    except NotImported as error:
        raise click.ClickException(f"{file}: {error}") from error
    for left in () if as_json else found.left_out:
        click.echo(f"Not carried over: {_line(left)}", err=True)
    if output is not None:
        _write(output, as_yaml(found.document))
    if options["submits"] or options["dry_run"]:
        with server(options["project"]) as client:
            if options["dry_run"]:
                show_dry_run(client, found.document, as_json=as_json)
            else:
                submit_document(client, found.document, watches=False, as_json=as_json)
    elif as_json:
        left_out = [vars(left) for left in found.left_out]
        print_json({"document": found.document, "not_carried_over": left_out})
    elif output is None:
        click.echo(as_yaml(found.document), nl=False)


def detected(config: Mapping[str, Any]) -> str:
    """The tool whose configuration this is. Raises ClickException if it is neither's."""
    if any(key in config for key in _OF_LLAMA_FACTORY):
        return "llamafactory"
    if "base_model" in config:
        return "axolotl"
    raise click.ClickException(
        "this is no configuration of axolotl (it has no base_model) or LLaMA-Factory (no model_name_or_path); "
        "trainyard submit takes job documents"
    )


def as_yaml(document: Mapping[str, Any]) -> str:
    import yaml  # noqa: PLC0415 – slow to import, and --json needs none

    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=120)


def _write(output: Path, text: str) -> None:
    """Raises ClickException where nothing can be written."""
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{output} can't be written: {error.strerror or error}") from error


def imported(config: Mapping[str, Any], tool: str, folder: Path, *, default_name: str, gpus: int) -> Imported:
    """The configuration of this tool as a job document. Raises NotImported."""
    keys = ConfigKeys(config)
    with keys.naming_what_is_no_value():
        found: Imported = importlib.import_module(TOOLS[tool]).imported(
            keys, folder, default_name=default_name, gpus=gpus
        )
    return found


def _line(left: LeftOut) -> str:
    return f"{left.key}: {json.dumps(left.value, default=str):.80}: {left.reason}"
