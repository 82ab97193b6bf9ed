"""The demo's processes: its own `trainyard up`, which ends with it, and scripts of the examples."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from trainyard.client import Client

CHECKOUT = Path(__file__).parents[3]
START_SECONDS = 60.0
STOP_SECONDS = 60.0
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


@contextmanager
def platform(data_dir: Path, *, roots: Path, options: Sequence[str] = ()) -> Iterator[Client]:
    """Run a platform for the duration of the block. Jobs may read from ``roots``; ``options`` are passed to `up`."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    log_path = data_dir / "up.out"
    with log_path.open("wb") as log:
        process = _start(data_dir, roots, options, log.fileno())
    try:
        yield _client(process, data_dir, log_path)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # its children die with it
            process.wait()


def _start(data_dir: Path, roots: Path, options: Sequence[str], output: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "app.cli.main", "up", "--data-dir", str(data_dir), "--port", "0"]
    command += ["--no-flower", "--no-tensorboard", *options]
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONSAFEPATH": "1", "TRAINYARD_STORAGE_ROOTS": str(roots)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        process_group=0,  # Ctrl-C is for the demo, which cancels its job before it stops this
        preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509 – no threads here
    )


def _client(process: "subprocess.Popen[bytes]", data_dir: Path, log_path: Path) -> Client:
    url_path = data_dir / "run" / "url"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise click.ClickException(f"could not start:\n{log_path.read_text()}")
        if "Ready after" in log_path.read_text():
            click.echo(log_path.read_text().rstrip())
            return Client(url_path.read_text().strip(), (data_dir / "admin.key").read_text().strip())
        time.sleep(0.05)
    raise click.ClickException(f"not ready after {START_SECONDS:g} s; see {data_dir / 'log'}\n{log_path.read_text()}")


def run_module(name: str, *arguments: str) -> str:
    """The standard output of an example script; its standard error goes to the terminal."""
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), **quiet}
    command = [sys.executable, "-m", name, *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(f"python -m {name} failed with exit code {done.returncode}")
    return done.stdout
