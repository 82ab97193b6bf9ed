"""Chromium before the dashboard of a whole system: real processes, simulated nodes, jobs that only count."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

from tests.systems.clients import node_packages
from tests.systems.running_up import RunningUp
from tests.web.content import Content, populate
from tests.web.site import Site

ROOT = Path(__file__).parents[2]
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
VIEWPORT: ViewportSize = {"width": 1366, "height": 900}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.web)
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[Site]:
    """One system for all tests, which share its nodes: each test works on jobs and projects of its own."""
    folder = tmp_path_factory.mktemp("web")
    shutil.copytree(ROOT / "examples" / "cluster", folder / "examples" / "cluster")
    running = RunningUp(folder / "data", "--simulate", "h100:8", "--simulate", "a100:4")
    owned_pids.add(running.process.pid)
    running.wait_until_ready()
    owned_pids.update(running.pids().values())
    yield Site(running)
    running.stop()


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
def context(browser: Browser, site: Site) -> Iterator[BrowserContext]:
    """A browser of its own for each test; it fails the test for what no page may do."""
    opened = browser.new_context(viewport=VIEWPORT, base_url=site.url, reduced_motion="reduce")
    opened.set_default_timeout(15_000)
    seen: list[str] = []
    opened.on("console", lambda message: seen.append(message.text) if message.type == "error" else None)
    opened.on("weberror", lambda error: seen.append(str(error.error)))
    opened.on("request", lambda request: _stays(request.url, site.url, seen))
    yield opened
    opened.close()
    assert [each for each in seen if not any(expected in each for expected in REFUSED)] == []


@pytest.fixture
def page(context: BrowserContext, site: Site) -> Page:
    """A page of the administrator, signed in."""
    opened = context.new_page()
    site.sign_in(opened, site.key)
    return opened


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds violations of WCAG."""
    return (node_packages() / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def violations(axe: str) -> Any:
    """A function: what axe-core finds on a page, a line each."""

    def found(page: Page) -> list[str]:
        page.evaluate(axe)
        tags = json.dumps(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"])
        result = page.evaluate(f"axe.run(document, {{runOnly: {{type: 'tag', values: {tags}}}}})")
        return [
            f"{violation['id']}: {node['target']} {node['failureSummary']}"
            for violation in result["violations"]
            for node in violation["nodes"]
        ]

    return found


def _stays(url: str, base: str, seen: list[str]) -> None:
    if not url.startswith((f"{base}/", "data:", "blob:")):
        seen.append(f"a request to another host: {url}")
