"""`trainyard demo`: trains a small model end to end on this machine."""

import json
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from app.cli.client.curve import Point, draw
from app.cli.client.job_views import BarView, JobLineView
from app.cli.client.watch import EXIT_NOT_COMPLETED, follow
from app.cli.connection import server
from app.cli.local.demo_processes import CHECKOUT, platform, run_module
from app.cli.local.demo_sweep import search
from app.cli.local.sandbox import OPTION as NO_SANDBOX
from app.cli.local.sandbox import ensure_sandbox, no_sandbox_message, no_sandbox_option
from app.cli.output import duration
from app.domain.nodes.sandboxes import WITHOUT_NAMESPACES
from config.environment import client_environment
from config.settings import SettingsError, load_settings
from trainyard.client import Client, ClientError, Job

DEFAULT_DIRECTORY = CHECKOUT / ".trainyard" / "demo"
JOB = "examples/jobs/sft.json"
# Fractions of the curve averaged at both ends to report the fall of the loss: single steps are noisy.
BEGINNING, END = 0.01, 0.05
# Enough for one sentence.
NEW_TOKENS = 32


@dataclass(frozen=True)
class Assets:
    """The output of `examples/build_demo_assets.py`."""

    directory: Path
    model: str
    prompt: str


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_DIRECTORY,
    help="Directory of all data; a second run reuses its model and text.",
)
@click.option("--steps", type=click.IntRange(min=1), help="Optimizer steps; a few suffice to try it, but not to learn.")
@click.option("--sweep", "sweeps", is_flag=True, help="Search for hyperparameters of a LoRA training instead.")
@no_sandbox_option
def demo(data_dir: Path, steps: int | None, sweeps: bool, no_sandbox: bool) -> None:  # noqa: FBT001
    """Train a small model on this machine and show the result.

    Starts and stops a platform of its own; with TRAINYARD_URL set it uses that server, which must be able to read the
    data directory.
    """
    _require_examples()
    if not no_sandbox:
        _require_sandbox()
    data_dir = data_dir.absolute()
    assets = _build_assets(data_dir / "assets")
    _show_text("Before training", assets.model, assets.prompt)
    with _server(data_dir, assets, [NO_SANDBOX] if no_sandbox else []) as client:
        job = search(client, assets.directory, steps) if sweeps else _train(client, assets, steps)
        _show_curve(client, job)
        with _model_of(client, job, data_dir) as model:
            click.echo(f"Model   {model}")
            _show_answer(client, job, assets.prompt)


def _require_examples() -> None:
    if not (CHECKOUT / JOB).exists():
        raise click.ClickException(
            "the demo needs the folder examples/ of the source checkout, which the installed package does not contain: "
            "clone the repository and run `make demo` there"
        )


def _require_sandbox() -> None:
    """Raises ClickException without a sandbox: the job would wait for one forever."""
    if client_environment()[0]:
        return
    try:
        wanted = load_settings().node.sandbox
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    if wanted not in WITHOUT_NAMESPACES and (lack := ensure_sandbox(click.echo)) is not None:
        raise click.ClickException(no_sandbox_message(lack))


def _build_assets(directory: Path) -> Assets:
    if not directory.exists():
        click.echo("Creating a small model with random weights, and text from Python's standard library …")
    made = json.loads(run_module("examples.build_demo_assets", "--out", str(directory)).splitlines()[-1])
    return Assets(directory, made["model"], made["prompt"])


def _show_text(title: str, model: str, prompt: str) -> None:
    _heading(title)
    arguments = ("--model", model, "--prompt", prompt, "--max-new-tokens", str(NEW_TOKENS))
    click.echo(run_module("examples.generate", *arguments).rstrip())


def _show_answer(client: Client, job: Job, prompt: str) -> None:
    """As any client of OpenAI's API would ask; the first request starts a service for the model."""
    _heading("After training")
    click.echo(f"POST /v1/completions, model {job.job_id}; a service with the model starts …")
    chunks = client.services.complete(job.job_id, prompt, max_tokens=NEW_TOKENS, temperature=0)
    text = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
    click.echo((prompt + text).rstrip())


@contextmanager
def _server(data_dir: Path, assets: Assets, options: Sequence[str]) -> Iterator[Client]:
    if client_environment()[0]:
        with server() as client:
            yield client
        return
    _heading("Starting the platform on this machine")
    with platform(data_dir / "data", roots=assets.directory, options=options) as client:
        try:
            yield client
        except ClientError as error:
            raise click.ClickException(str(error)) from error


def _train(client: Client, assets: Assets, steps: int | None) -> Job:
    text = (CHECKOUT / JOB).read_text(encoding="utf-8")
    document = json.loads(
        text.replace("@ASSETS@", str(assets.directory)).replace("@EXAMPLES@", str(CHECKOUT / "examples"))
    )
    document["resource_config"]["gpu_count"] = _devices(client, at_most=document["resource_config"]["gpu_count"])
    if steps is not None:
        document["training_config"]["hyperparameters"]["max_steps"] = str(steps)
    submitted = client.submit(document)
    _heading(f"Training: {document['name']}, {submitted.job_id}")
    view = BarView() if sys.stdout.isatty() else JobLineView()
    try:
        job = follow(client, submitted.job_id, view)
    except KeyboardInterrupt:
        client.cancel(submitted.job_id, reason="the demo was interrupted")
        raise
    finally:
        view.close()
    if job.status != "COMPLETED":
        lines = "\n".join(line["line"] for line in client.logs(job.job_id, tail=20))
        click.echo(f"{job.job_id} {job.status} {job.error_type}: {job.error_message}\n{lines}", err=True)
        sys.exit(EXIT_NOT_COMPLETED)
    return job


def _devices(client: Client, *, at_most: int) -> int:
    """The GPUs of the largest node, at most ``at_most``: many machines have a single GPU."""
    gpus = [[device for device in node["devices"] if device["type"] != "cpu"] for node in client.nodes.list()]
    # The job's device_type is auto: it uses CPU slots where no node has a GPU, and every machine has enough of them.
    return min(at_most, max(map(len, gpus), default=0) or at_most)


def _show_curve(client: Client, job: Job) -> None:
    series = client.metrics(job.job_id, names=["loss", "eval_loss"])["series"]
    points = _finite(series.get("loss", []))
    _heading("Loss by step")
    width = max(40, min(100, shutil.get_terminal_size().columns - 12))
    click.echo("\n".join(draw(points, width=width)))
    click.echo(f"Loss    {fall(points)}, {job.current_step} steps in {duration(job.elapsed_seconds)}")
    if evaluated := _finite(series.get("eval_loss", [])):
        click.echo(f"        {evaluated[-1][1]:.3f} on text it was not trained on")


def fall(points: Sequence[Point]) -> str:
    """``6.32 → 1.58, 4.0 times lower``."""
    if not points:
        return "was never reported"
    beginning, end = (max(1, round(len(points) * share)) for share in (BEGINNING, END))
    first = statistics.fmean(value for _, value in points[:beginning])
    last = statistics.fmean(value for _, value in points[-end:])
    return f"{first:.3f} → {last:.3f}" + (f", {first / last:.1f} times lower" if last > 0 else "")


def _finite(series: Sequence[Sequence[Any]]) -> list[Point]:
    return [(float(step), float(value)) for step, _, value in series if isinstance(value, int | float)]


@contextmanager
def _model_of(client: Client, job: Job, data_dir: Path) -> Iterator[Path]:
    """The exported model's directory: in local storage, or a downloaded copy."""
    uri = urlsplit(client.report(job.job_id)["model_uri"])
    local = Path(unquote(uri.path))
    if uri.scheme == "file" and (local / "config.json").exists():
        yield local
        return
    copy = data_dir / "models" / job.job_id
    for artifact in client.artifacts(job.job_id):
        target = copy / artifact["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        client.download(job.job_id, artifact["path"], target)
    yield next(copy.rglob("config.json")).parent


def _heading(text: str) -> None:
    click.secho(f"\n{text}", bold=True)
