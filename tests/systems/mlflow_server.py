"""A real MLflow server of the pinned version, with a database and files of its own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import psutil

from tests.systems.clients import python_with
from tests.systems.polling import polls
from tests.systems.servers import free_port

START_SECONDS = 240.0  # it imports much of pandas and scikit-learn, on a busy machine


@contextmanager
def running_mlflow_server(folder: Path, owned_pids: set[int]) -> Iterator[str]:
    """Its URL. Skips the test where no registry of packages can be reached and none of its packages are kept."""
    python, port = python_with("mlflow"), free_port()
    command = [str(python), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--artifacts-destination", str(folder)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=folder,
            stdout=log,
            stderr=log,
            env={"PATH": f"{python.parent}:/usr/bin:/bin", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )
    owned_pids.add(server.pid)
    url = f"http://127.0.0.1:{port}"
    try:
        started = any(_answers(url) or server.poll() is not None for _ in polls(START_SECONDS))
        assert started, (folder / "log").read_text()
        assert server.poll() is None, (folder / "log").read_text()
        yield url
    finally:
        children = psutil.Process(server.pid).children(recursive=True) if server.poll() is None else []
        for child in children:
            child.kill()
        server.kill()
        server.wait()
        psutil.wait_procs(children, timeout=10)


def _answers(url: str) -> bool:
    try:
        with build_opener(ProxyHandler({})).open(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
