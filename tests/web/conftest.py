"""Chromium before the dashboard of a whole system: real processes, simulated nodes, jobs that only count."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

from tests.systems.clients import node_packages
from tests.systems.running_up import RunningUp
from tests.systems.servers import free_port
from tests.web.content import Content, populate
from tests.web.presses import Presses
from tests.web.site import PATIENCE_MS, Site

ROOT = Path(__file__).parents[2]
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
VIEWPORT: ViewportSize = {"width": 1366, "height": 900}
TEST_SECONDS = 600  # the first test also starts what all of them share
expect.set_options(timeout=PATIENCE_MS)

LAST = "test_every_action_was_carried_out"
_presses = Presses()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.web)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))
    yield
    items.sort(key=lambda item: item.name == LAST)  # in whatever order the others are: it asks what they did
    chosen = {item.path for item in items if item.path.is_relative_to(here)}
    given = config.option
    is_narrowed = (
        given.keyword or given.deselect or given.markexpr != "web" or any("::" in each for each in config.args)
    )
    _presses.is_second_go = config.getoption("lf", default=False)
    _presses.is_whole_run = not is_narrowed and chosen == set(here.glob("test_*.py"))


@pytest.fixture(scope="session")
def presses() -> Presses:
    return _presses


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[Site]:
    """One system for all tests, which share its nodes: each test works on jobs and projects of its own."""
    folder = tmp_path_factory.mktemp("web")
    shutil.copytree(ROOT / "examples" / "cluster", folder / "examples" / "cluster")
    mail_port = free_port()  # of a server that a test starts
    smtp = {"HOST": "127.0.0.1", "PORT": str(mail_port), "SECURITY": "none", "SENDER": "trainyard@example.org"}
    environment = {f"TRAINYARD_SMTP_{name}": value for name, value in smtp.items()}
    running = RunningUp(folder / "data", "--simulate", "h100:8", "--simulate", "a100:4", environment=environment)
    owned_pids.add(running.process.pid)
    running.wait_until_ready()
    owned_pids.update(running.pids().values())
    yield Site(running, mail_port)
    running.stop()


@pytest.fixture(autouse=True)
def _give_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests run in any order: none leaves jobs or sweeps that take devices from those after it."""
    if "site" not in request.fixturenames:
        yield
        return
    site: Site = request.getfixturevalue("site")
    site.remember()
    yield
    site.give_back()


@pytest.fixture(scope="session")
def content(site: Site) -> Content:
    """Jobs in every kind of state, a sweep, a webhook; tests that only read share them."""
    return populate(site)


@pytest.fixture(scope="session")
def browser(owned_pids: set[int]) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium, which scripts/install-system-packages chromium installs on Debian")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        owned_pids.update(child.pid for child in psutil.Process().children(recursive=True))
        yield opened
        opened.close()


# What Chromium and htmx report as errors of a request that was refused or did not get out, as several tests ask for.
REFUSED = ("Failed to load resource", "htmx:sendError", "htmx:afterRequest")


@pytest.fixture
def context(browser: Browser, site: Site, presses: Presses) -> Iterator[BrowserContext]:
    """A browser of its own for each test; it fails the test for what no page may do."""
    opened = browser.new_context(viewport=VIEWPORT, base_url=site.url, reduced_motion="reduce")
    presses.watch(opened)
    opened.set_default_timeout(PATIENCE_MS)
    seen: list[str] = []
    opened.on("console", lambda message: seen.append(message.text) if message.type == "error" else None)
    opened.on("weberror", lambda error: seen.append(str(error.error)))
    opened.on("request", lambda request: _stays(request.url, site.url, seen))
    yield opened
    opened.close()
    assert [each for each in seen if not any(expected in each for expected in REFUSED)] == []


@pytest.fixture(scope="session")
def signed_in(browser: Browser, site: Site) -> tuple[str, str]:
    """Cookie of a sign-in of the administrator, which no test may end: one that does signs in itself."""
    opened = browser.new_context(base_url=site.url)
    site.sign_in(opened.new_page(), site.key)
    (cookie,) = opened.cookies()
    opened.close()
    return cookie["name"], cookie["value"]


@pytest.fixture
def page(context: BrowserContext, site: Site, signed_in: tuple[str, str]) -> Page:
    """An empty page of the administrator, signed in."""
    name, value = signed_in
    context.add_cookies([{"name": name, "value": value, "url": site.url, "httpOnly": True, "sameSite": "Strict"}])
    return context.new_page()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds violations of WCAG."""
    return (node_packages() / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def violations(axe: str) -> Any:
    """A function: what axe-core finds on a page, a line each; with `colors_alone` of what differs between schemes."""

    def found(page: Page, *, colors_alone: bool = False) -> list[str]:
        if not page.evaluate("'axe' in window"):
            page.evaluate(axe)
        chosen = json.dumps({"runOnly": _COLORS if colors_alone else _EVERYTHING, "resultTypes": ["violations"]})
        result = page.evaluate(f"axe.run(document, {chosen})")
        return [
            f"{violation['id']}: {node['target']} {node['failureSummary']}"
            for violation in result["violations"]
            for node in violation["nodes"]
        ]

    return found


_EVERYTHING = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
_COLORS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}


def _stays(url: str, base: str, seen: list[str]) -> None:
    if not url.startswith((f"{base}/", "data:", "blob:")):
        seen.append(f"a request to another host: {url}")
