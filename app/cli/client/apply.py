"""`trainyard apply`: applies Kubernetes manifests without kubectl."""

import sys
from pathlib import Path
from typing import Any

import click

from app.cli.connection import server
from app.cli.output import json_option, print_json
from trainyard._client.http import quote

_BASE = "/apis/ome.io/v1beta1"
_KINDS = {
    "TrainingJob": "namespaces/{namespace}/trainingjobs",
    "TrainingRuntime": "namespaces/{namespace}/trainingruntimes",
    "ClusterTrainingRuntime": "clustertrainingruntimes",
    "BaseModel": "namespaces/{namespace}/basemodels",
}


@click.command()
@click.option(
    "-f",
    "--filename",
    "file",
    required=True,
    help="A YAML or JSON file of manifests; - reads standard input.",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
)
@click.option(
    "-n", "--namespace", default="default", help="The project of manifests without a namespace.", show_default=True
)
@json_option
def apply(file: Path, namespace: str, as_json: bool) -> None:  # noqa: FBT001
    """Create or update the OME TrainingJobs, runtimes and base models in FILE."""
    manifests = read_manifests(file)
    paths = [_path(each, namespace) for each in manifests]  # check every manifest before sending the first
    applied = []
    with server() as client:
        for manifest, path in zip(manifests, paths, strict=True):
            found, is_new = client.apply(path, manifest, warn=_warn)
            applied.append(found)
            if not as_json:
                name = f"{manifest['kind'].lower()}.ome.io/{found['metadata']['name']}"
                click.echo(f"{name} {'created' if is_new else 'applied'}")
    if as_json:
        print_json(applied)


def _warn(line: str) -> None:
    click.echo(f"Warning: {line}", err=True)


def read_manifests(file: Path) -> list[dict[str, Any]]:
    """The manifests of a YAML or JSON file. Raises ClickException for an invalid one."""
    import yaml  # noqa: PLC0415 – slow to import, and only this command needs it

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        found = [each for each in yaml.safe_load_all(text) if each is not None]
    except (ValueError, yaml.YAMLError) as error:
        raise click.ClickException(f"{file} holds no manifests: {error}") from error
    if not found or not all(isinstance(each, dict) for each in found):
        raise click.ClickException(
            f"{file} holds no manifests; each is a mapping with apiVersion, kind, metadata, spec"
        )
    return found


def _path(manifest: dict[str, Any], namespace: str) -> str:
    kind, metadata = manifest.get("kind"), manifest.get("metadata")
    if manifest.get("apiVersion") != "ome.io/v1beta1" or kind not in _KINDS:
        raise click.ClickException(f"apiVersion must be ome.io/v1beta1 and kind one of {', '.join(_KINDS)}, not {kind}")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise click.ClickException(f"a {kind} has no metadata.name")
    where = _KINDS[kind].format(namespace=quote(str(metadata.get("namespace") or namespace)))
    return f"{_BASE}/{where}/{quote(metadata['name'])}"
