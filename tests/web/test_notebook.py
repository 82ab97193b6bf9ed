"""The JupyterLab of a job in Chromium: real packages, a real sandbox, and the way through a gateway."""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, WebSocket, expect

from app.domain.spec.interactive import NOTEBOOK_PORT
from tests.systems.clients import CLIENTS, wheels_of
from tests.systems.package_index import Index, package_index
from tests.systems.running_up import RunningUp, wait_until
from tests.systems.servers import free_port
from tests.web.site import Site

pytestmark = pytest.mark.timeout(600)
MODES = {"paths": "http://jobs.localhost", "hosts": "http://*.jobs.localhost"}
STARTS_MS = 40_000  # of a kernel, on a machine that does other things too
WAITS = ["python3", "-c", "import signal; signal.pause()"]
PINNED = re.compile(r"^jupyterlab==.+$", re.MULTILINE)


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    """With JupyterLab and what it needs, in the pinned versions."""
    with package_index() as found:
        found.files |= {path.name: path.read_bytes() for path in wheels_of("jupyterlab").glob("*.whl")}
        yield found


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all modes, one after the other: the packages are installed once."""
    return tmp_path_factory.mktemp("lab") / "data"


@pytest.fixture(params=list(MODES))
def lab_site(request: pytest.FixtureRequest, data_dir: Path, index: Index, owned_pids: set[int]) -> Iterator[Site]:
    port = free_port()
    running = RunningUp(
        data_dir,
        environment={
            "TRAINYARD_PACKAGES_INDEX_URL": index.url,
            "TRAINYARD_GATEWAY_PORT": str(port),
            "TRAINYARD_GATEWAY_PORTS_URL": f"{MODES[request.param]}:{port}",
        },
    )
    owned_pids.add(running.process.pid)
    running.wait_until_ready()
    owned_pids.update(running.pids().values())
    site = Site(running)
    site.ask("PATCH", "/v1/projects/default", {"sessions": "allowed"})
    yield site
    running.stop()


@pytest.fixture
def person(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context()
    opened.set_default_timeout(STARTS_MS)
    yield opened
    opened.close()


def test_a_notebook_runs_cells_and_terminals_and_ends_where_those_are_recorded(
    lab_site: Site, person: BrowserContext
) -> None:
    job_id = _submit(lab_site)
    lab_site.wait_for(job_id, "TRAINING", seconds=300)  # 91 packages are installed
    address = lab_site.ask("POST", f"/v1/jobs/{job_id}/ports/{NOTEBOOK_PORT}/url", {})["url"]
    wait_until(lambda: _status(address, lab_site.key) == 200, 60)
    page = person.new_page()
    sockets: list[WebSocket] = []
    page.on("websocket", lambda each: sockets.append(each))  # noqa: PLW0108 – it marks what it is given

    page.goto(address)
    _open(page, "Notebook")
    # What is run before the kernel has started is lost, as everywhere with JupyterLab.
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=STARTS_MS)
    page.locator(".jp-Notebook .cm-content").click()
    page.keyboard.type("print(6 * 7)")
    page.keyboard.press("Shift+Enter")

    expect(page.locator(".jp-OutputArea-output")).to_have_text("42\n", timeout=STARTS_MS)
    assert "trainyard_token" not in page.url
    assert _heard_of_terminal(page) == "43"
    lab_site.ask("PATCH", "/v1/projects/default", {"sessions": "recorded"})
    wait_until(lambda: _are_closed(page, sockets), 20)
    page.reload()
    expect(page.locator("body")).to_contain_text("is recorded", timeout=STARTS_MS)
    lab_site.ask("POST", f"/v1/jobs/{job_id}/cancel", {})
    lab_site.wait_for(job_id, "CANCELLED")


def _submit(site: Site) -> str:
    (wanted,) = PINNED.findall((CLIENTS / "requirements" / "jupyterlab.txt").read_text())
    training = {"framework": {"type": "CUSTOM", "custom_command": WAITS}, "packages": {"requirements": [wanted]}}
    document: dict[str, Any] = {
        "name": "lab",
        "training_config": training,
        "resource_config": {"device_type": "cpu"},
        "interactive_config": {"notebook": True},
    }
    return str(site.ask("POST", "/v1/jobs", document)["job_id"])


def _open(page: Page, category: str) -> None:
    """Something of the launcher, which a new tab shows."""
    page.locator(".jp-Launcher-section", has_text=category).locator(".jp-LauncherCard").first.click()


def _heard_of_terminal(page: Page) -> str:
    """What a terminal shows of a sum."""
    heard: list[str] = []
    with page.expect_websocket(lambda each: "/terminals/websocket/" in each.url) as opened:
        page.locator(".lm-TabBar-addButton:visible").first.click()
        page.locator(".jp-LauncherCard:visible", has_text="Terminal").click()
    opened.value.on("framereceived", lambda frame: heard.append(str(frame)))
    page.locator(".jp-Terminal .xterm-screen").click()
    page.keyboard.type("echo sum=$((42 + 1))\n")
    for _ in range(100):
        if found := re.search(r"sum=(\d+)", "".join(heard)):
            return found[1]
        page.wait_for_timeout(100)
    raise AssertionError(f"the terminal showed {heard}")


def _are_closed(page: Page, sockets: list[WebSocket]) -> bool:
    page.wait_for_timeout(100)
    return all(each.is_closed() for each in sockets)


def _status(address: str, key: str) -> int:
    """As a program with a key; names below localhost need not be known to it."""
    host, _, path = address.partition("://")[2].partition("/")
    request = urllib.request.Request(
        f"http://127.0.0.1:{host.rpartition(':')[2]}/{path.partition('?')[0]}",
        headers={"Host": host, "Authorization": f"Bearer {key}"},
    )
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return 200 if error.code in (301, 302) else error.code


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None
