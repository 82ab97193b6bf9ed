"""TensorBoard as a process: a real one for each job, which opens with a token of that job and nothing else."""

import http.cookiejar
import json
import secrets
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.cli.local.command_lines import tensorboard_command
from app.domain.ids import new_id
from app.services.telemetry.tensorboards import address_of
from app.storage.object_keys import event_file, run_file_key
from app.storage.storage import Storage
from config.settings import load_settings
from tests.systems.system import wait_for
from workers.supervisor.recording.tensorboard_format import first_event, scalars_event

ROOT = Path(__file__).parents[3]
SECONDS = 40.0


class Site:
    """The server on a socket of ours, as `trainyard up` starts it."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        environment = {
            "TRAINYARD_DATA_DIR": str(data_dir),
            "TRAINYARD_SECURITY_SECRET_KEY": secrets.token_urlsafe(32),
            "TRAINYARD_TENSORBOARD_URL": self.url,
            **settings,
        }
        self.settings = load_settings(environment)
        self.storage = Storage(self.settings.storage.url)
        fd = self._listener.fileno()
        own = {"PATH": "/usr/bin:/bin", "PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT), **environment}
        self.process = subprocess.Popen(tensorboard_command(fd), env=own, pass_fds=(fd,), cwd="/")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self._listener.close()

    def boards(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def job(self, **values: float) -> str:
        """The id of a job that reported these metrics in its first step."""
        job_id = new_id("job")
        now = time.time()
        self.storage.write(key(job_id), first_event(now) + scalars_event(now, 1, values))
        return job_id

    def token(self, job_id: str, name: str = "night run") -> str:
        address = address_of(self.settings, job_id, name)
        assert address is not None
        assert address[0] == f"{self.url}/{job_id}/"
        return address[1]

    def ask(self, path: str, token: str = "") -> tuple[int, Any]:
        """Status, and JSON or text."""
        request = urllib.request.Request(f"{self.url}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                text = answer.read().decode()
                return answer.status, json.loads(text) if text.startswith(("{", "[")) else text
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def key(job_id: str) -> str:
    return run_file_key(job_id, event_file(1, 1))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def start(**settings: str) -> Site:
        sites.append(Site(tmp_path_factory.mktemp("boards"), **settings))
        return sites[-1]

    yield start
    for site in sites:
        site.close()


@pytest.fixture(scope="module")
def site(start: Callable[..., Site]) -> Site:
    return start()


def tags(site: Site, job_id: str) -> set[str]:
    status, found = site.ask(f"/{job_id}/data/plugin/scalars/tags", site.token(job_id))
    assert status == 200, found
    return {tag for run in found.values() for tag in run}


@pytest.mark.long
def test_job_is_shown_with_what_it_tells_meanwhile(site: Site) -> None:
    job_id = site.job(loss=2.5)
    wait_for(lambda: tags(site, job_id) == {"loss"}, seconds=SECONDS, what="its metric is shown")
    before = site.storage.read(key(job_id))

    more = scalars_event(time.time(), 2, {"accuracy": 0.5})
    site.storage.grow(key(job_id), offset=len(before), tail=more, whole=before + more)

    wait_for(lambda: tags(site, job_id) == {"loss", "accuracy"}, seconds=SECONDS, what="what came later is shown")
    status, points = site.ask(f"/{job_id}/data/plugin/scalars/scalars?run=night%20run&tag=loss", site.token(job_id))
    assert (status, [value for _, _, value in points]) == (200, [2.5])


@pytest.mark.long
def test_name_that_is_no_folder_is_replaced_by_the_id(site: Site) -> None:
    job_id = site.job(loss=2.5)
    token = site.token(job_id, "../../etc")

    def runs() -> Any:
        return site.ask(f"/{job_id}/data/runs", token)[1]

    wait_for(lambda: runs() == [job_id], seconds=SECONDS, what="its run is shown")


@pytest.mark.long
def test_browser_opens_it_by_the_token_of_the_address(site: Site) -> None:
    job_id = site.job(loss=1.0)
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    with browser.open(f"{site.url}/{job_id}/?token={site.token(job_id)}", timeout=SECONDS) as page:
        shown, address = page.read().decode(), page.url
    with browser.open(f"{site.url}/{job_id}/data/environment", timeout=SECONDS) as answer:
        environment = json.load(answer)

    assert (address, "<title>TensorBoard</title>" in shown) == (f"{site.url}/{job_id}/", True)
    assert environment["window_title"] == job_id


@pytest.mark.long
def test_a_job_is_only_shown_with_its_own_token(site: Site) -> None:
    job_id, other = site.job(loss=1.0), site.job(loss=1.0)
    expired = site.token(job_id)[:-4] + "AAAA"

    for token in ("", "x", expired, site.token(other)):
        status, said = site.ask(f"/{job_id}/data/plugin/scalars/tags", token)
        assert (status, "token" in said) == (401, True), token
    assert site.ask("/passwd/", site.token(job_id))[0] == 404
    assert site.ask(f"/{job_id}/a%20b/..%2f..%2f%0d%0aX", site.token(job_id))[0] == 404
    assert site.ask("/health") == (200, {"status": "live"})


def test_oversized_request_is_refused(site: Site) -> None:
    job_id = site.job(loss=1.0)
    question = urllib.request.Request(f"{site.url}/{job_id}/data/runs", data=b"x" * 2**21)

    with pytest.raises(OSError, match=r"400|reset|pipe"):
        urllib.request.urlopen(question, timeout=SECONDS)

    assert site.ask("/health") == (200, {"status": "live"})


@pytest.mark.long
def test_board_that_died_is_started_again(site: Site) -> None:
    job_id = site.job(loss=1.0)
    assert site.ask(f"/{job_id}/data/environment", site.token(job_id))[0] == 200
    for board in site.boards():
        board.kill()

    assert site.ask(f"/{job_id}/data/environment", site.token(job_id))[0] == 200


@pytest.mark.long
def test_boards_are_limited_and_end_when_idle_or_with_their_server(start: Callable[..., Site]) -> None:
    small = start(TRAINYARD_TENSORBOARD_MOST="1", TRAINYARD_TENSORBOARD_IDLE_SECONDS="1")
    first, second = small.job(loss=1.0), small.job(loss=1.0)
    wait_for(lambda: small.ask("/health")[0] == 200, seconds=SECONDS, what="it serves")
    assert small.ask(f"/{first}/data/environment", small.token(first))[0] == 200
    (board,) = small.boards()

    assert small.ask(f"/{second}/data/environment", small.token(second))[0] == 200

    assert not board.is_running()
    wait_for(lambda: small.boards() == [], seconds=SECONDS, what="the other one is idle, and ends")
    assert small.ask(f"/{first}/data/environment", small.token(first))[0] == 200
    (board,) = small.boards()
    small.process.send_signal(signal.SIGKILL)
    wait_for(lambda: not board.is_running(), seconds=SECONDS, what="it dies with its server")
