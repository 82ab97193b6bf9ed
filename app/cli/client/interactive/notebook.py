"""`trainyard notebook`: JupyterLab in a job, in the browser."""

import time
import webbrowser
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click

from app.cli.client.interactive.ports import address_of_port, port_answer
from app.cli.client.submit import project_option, read_document, warn
from app.cli.connection import address, server
from app.cli.handles import JobHandle, id_to_stop, job_id_of
from app.cli.output import json_option, print_json, printable
from app.domain.spec.interactive import NOTEBOOK_PORT
from config.environment import client_tokens
from trainyard.client import ApiError, Client, Job

POLL_SECONDS = 0.5
CANNOT_START = "NOTEBOOK"  # reason of an event: the job has no JupyterLab
TRAINING = "TRAINING"
JUPYTERLAB = "jupyterlab>=4,<5"
PACKAGES_FIELD = "training_config.packages"  # which messages about packages begin with
_WITHOUT_INDEX = (
    "`trainyard notebook --image REFERENCE` needs no packages, where TRAINYARD_IMAGES_SOURCES has its registry; "
    "`--file` takes a document with another packages.index_url"
)
# The script of a notebook's job: the server of the notebook runs beside it, and a signal ends both.
_WAITS = ["python3", "-c", "import signal; signal.pause()"]
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.argument("handle", required=False, type=JobHandle(), metavar="[JOB]")
@click.option("--packages", type=_FILE, help="A requirements file of what the notebook imports.")
@click.option("--image", default="", help="A container image that has JupyterLab, instead of packages.")
@click.option("--gpus", type=click.IntRange(0), default=0, show_default=True, help="GPUs of the notebook.")
@click.option(
    "--hours", type=click.FloatRange(0, min_open=True), default=8.0, show_default=True, help="Its longest life."
)
@click.option("--name", default="notebook", show_default=True, help="What its job is called.")
@click.option("--file", type=_FILE, help="A job document to start from, for other settings.")
@project_option
@click.option("--print", "prints", is_flag=True, help="Print the address only; open no browser.")
@click.option("--stop", "stops", is_flag=True, help="Cancel JOB.")
@json_option
def notebook(*, handle: str | None, project: str, prints: bool, stops: bool, as_json: bool, **options: Any) -> None:
    """Open the notebook of JOB, or submit a job that runs JupyterLab, and open that.

    Waits until it is ready, at most as long as the job lives; Ctrl-C leaves the job running.
    """
    if stops and handle is None:
        raise click.UsageError("--stop needs the JOB of the notebook")
    with server(project) as client:
        if stops:
            job = client.cancel(id_to_stop(client, handle or ""), reason="notebook --stop")
            print_json(job.data) if as_json else click.echo(f"{job.job_id} {job.status} (cancellation requested)")
            return
        job_id = job_id_of(client, handle) if handle is not None else _submitted(client, **options)
        try:
            _wait_until_ready(client, job_id)
        except KeyboardInterrupt:
            click.echo(f"\n{job_id} continues to run. Stop it: trainyard notebook {job_id} --stop", err=True)
            raise click.exceptions.Exit(1) from None
        url = _opened(client, job_id)
    if as_json:
        print_json({"job_id": job_id, "url": url})
        return
    click.echo(url)
    click.echo(f"Stop it with: trainyard notebook {job_id} --stop", err=True)
    if not prints and not webbrowser.open(url):
        click.echo("There is no browser here; open the address yourself.", err=True)


def _submitted(client: Client, **options: Any) -> str:
    made = client.submit(document_of(**options), tokens=client_tokens())
    warn(made.warnings)
    click.echo(f"Submitted {made.job_id}", err=True)
    return made.job_id


def document_of(
    *, packages: Path | None, image: str, gpus: int, hours: float, name: str, file: Path | None
) -> dict[str, Any]:
    """The job of a notebook. Raises UsageError for packages beside an image."""
    if packages is not None and image:
        raise click.UsageError("--packages and --image exclude each other: an image has its own packages")
    document = read_document(file) if file is not None else {}
    document.setdefault("name", name)
    training = document.setdefault("training_config", {})
    training.setdefault("training_type", "SFT")
    training.setdefault("framework", {"type": "CUSTOM", "custom_command": _WAITS})
    resources = document.setdefault("resource_config", {})
    if image:
        resources["image"] = {"reference": image}
    elif packages is not None or "packages" not in training:
        training["packages"] = {"requirements": _requirements(packages)}
    if gpus:
        resources |= {"gpu_count": gpus, "device_type": "cuda"}
    elif "gpu_count" not in resources:
        resources["device_type"] = "cpu"
    scheduling = document.setdefault("scheduling_config", {})
    scheduling.setdefault("max_runtime_seconds", max(1, round(hours * 3600)))
    document["interactive_config"] = {**(document.get("interactive_config") or {}), "notebook": True}
    return document


def _requirements(file: Path | None) -> list[str]:
    """Of the file, and JupyterLab where it names none."""
    lines = [] if file is None else [line.split(" #")[0].strip() for line in file.read_text().splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    return found if any(line.lower().startswith("jupyterlab") for line in found) else [*found, JUPYTERLAB]


def _wait_until_ready(client: Client, job_id: str) -> None:
    """Says on the standard error what it waits for, whenever that changes. Raises ClickException."""
    said = ""
    _address(client, job_id)  # what will not open later need not be waited for
    while True:
        job = client.get(job_id)
        if job.is_terminal:
            raise click.ClickException(
                f"{job_id} is {job.status}: {job.error_message or 'it has ended'}{_way_out(job.error_message or '')}"
            )
        waits_for = _waits_for(job)
        if job.status == TRAINING:
            _refuse_missing(client, job_id)
            if not (waits_for := _not_yet(_address(client, job_id))):
                return
        if waits_for != said:
            said = waits_for
            click.echo(f"{time.strftime('%H:%M:%S')}  {printable(waits_for)}", err=True)
        time.sleep(POLL_SECONDS)


def _opened(client: Client, job_id: str) -> str:
    """Its address, with a token."""
    try:
        return address_of_port(client, job_id, NOTEBOOK_PORT)
    except ApiError:
        click.echo(f"{job_id} runs on. Stop it with: trainyard notebook {job_id} --stop", err=True)
        raise


def _address(client: Client, job_id: str) -> str:
    """Of the notebook, without a token."""
    port = next((each for each in client.ports(job_id) if each["name"] == NOTEBOOK_PORT), None)
    if port is None:
        raise click.ClickException(
            f"{job_id} has no notebook; submit one with `trainyard notebook`, or with interactive_config.notebook"
        )
    if port["url"] is None or not port["may_open"]:
        _opened(client, job_id)  # which says why not
    return str(port["url"])


def _refuse_missing(client: Client, job_id: str) -> None:
    for event in client.events(job_id):
        if event["type"] == "job.warning" and event["reason"] == CANNOT_START:
            raise click.ClickException(f"{event['message']}\nStop the job: trainyard notebook {job_id} --stop")


def _not_yet(url: str) -> str:
    """Why the notebook does not answer yet; empty once it does."""
    try:
        status, text = port_answer(url, address()[1])
    except OSError as error:
        return f"no gateway at {url}: {error}"
    return text.strip() or f"the gateway answers {status}" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ""


def _waits_for(job: Job) -> str:
    """Of a job that is tried again, also why it failed."""
    reason = job.data.get("pending_reason") or ""
    failed = job.error_message or ""
    said = "; ".join(filter(None, (reason, failed)))
    return f"{job.job_id} is {job.status}{f': {said}' if said else ''}{_way_out(failed)}"


def _way_out(failed: str) -> str:
    return f"\n{_WITHOUT_INDEX}" if failed.startswith(PACKAGES_FIELD) else ""
