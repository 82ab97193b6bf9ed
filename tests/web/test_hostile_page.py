"""The page of a hostile job, opened by a person who is signed in to the dashboard, gets nothing that is theirs."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.systems.running_up import wait_until
from tests.web.site import PATIENCE_MS, Site

PORT = 7860
# Answers every path with the page, and /heard with the headers of all requests so far.
SOURCE = f"""
import http.server, json
HEARD = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        HEARD.append([self.path, [list(each) for each in self.headers.items()]])
        content = json.dumps(HEARD).encode() if self.path == "/heard" else b"<!doctype html><title>Free GPUs</title>"
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if self.path == "/heard" else "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Set-Cookie", "trainyard-session=forged; Path=/; Domain=localhost")
        self.send_header("Set-Cookie", "trainyard-port=forged; Path=/")
        self.send_header("Set-Cookie", "own=1; Path=/")
        self.end_headers()
        self.wfile.write(content)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", {PORT}), Handler).serve_forever()
"""
# Each attack ends with what it got.
ATTACK = """
async (targets) => {
  const got = async (url, options) => {
    try {
      const answer = await fetch(url, {credentials: 'include', ...options});
      return answer.type === 'opaque' ? 'opaque' : `${answer.status} ${(await answer.text()).slice(0, 200)}`;
    } catch (error) { return 'refused'; }
  };
  const form = {method: 'POST', headers: {'Content-Type': 'application/x-www-form-urlencoded'}, body: 'reason=x'};
  const found = {cookies: document.cookie};
  found.dashboard = await got(targets.dashboard);
  found.api = await got(targets.api);
  found.post = await got(targets.pause, {...form, mode: 'no-cors'});
  found.sameHost = await got(targets.sameHost, {mode: 'no-cors'});
  document.cookie = 'trainyard-port=forged; path=/';
  document.cookie = 'trainyard-session=forged; path=/';
  document.cookie = 'trainyard-session=forged; path=/; domain=localhost';
  found.own = await got('heard');
  return found;
}
"""


@pytest.fixture
def person(browser: Browser, site: Site) -> Iterator[BrowserContext]:
    opened = browser.new_context(base_url=site.url)
    opened.set_default_timeout(PATIENCE_MS)
    yield opened
    opened.close()


def test_a_hostile_page_reads_no_cookie_and_acts_for_nobody(site: Site, person: BrowserContext) -> None:
    victim = site.submit("victim-of-a-page")
    config = {"ports": [{"name": "web", "port": PORT}]}
    job_id = site.submit_script("hostile-page", SOURCE, interactive_config=config)
    site.wait_for(job_id, "TRAINING")
    site.wait_for(victim, "TRAINING")
    address = site.ask("POST", f"/v1/jobs/{job_id}/ports/web/url", {})["url"]
    wait_until(lambda: _status(address) == 200, 90)
    dashboard = person.new_page()
    site.sign_in(dashboard, site.key)
    api_port = site.url.rpartition(":")[2]

    page = person.new_page()
    page.goto(address)
    found = page.evaluate(
        ATTACK,
        {
            "dashboard": f"{site.url}/ui/",
            "api": f"{site.url}/v1/jobs",
            "pause": f"{site.url}/ui/jobs/{victim}/pause",
            "sameHost": f"http://jobs.localhost:{api_port}/ui/",
        },
    )

    assert "trainyard_token" not in page.url
    assert found["cookies"] == "own=1"
    assert (found["dashboard"], found["api"]) == ("refused", "refused")
    assert found["post"] in {"opaque", "refused"}
    assert site.status(victim) == "TRAINING"
    assert found["own"].startswith("200")  # its own port stays open, whatever it sets
    _check_what_the_job_heard(page.evaluate("async () => await (await fetch('heard')).json()"))
    dashboard.reload()
    assert dashboard.get_by_role("button", name="Sign out").is_visible()  # still signed in
    names = {(each["name"], each["domain"]) for each in person.cookies()}
    assert ("trainyard-session", "localhost") not in names


def _check_what_the_job_heard(heard: Any) -> None:
    """No cookie, token or key of ours."""
    sent = [value for _, headers in heard for name, value in headers if name.lower() != "host"]
    assert not [each for each in sent if "trainyard-" in each or "trainyard_token" in each]
    assert not [path for path, _ in heard if "trainyard_token" in path]


def _status(address: str) -> int:
    """As a program without cookies: the first answer leads to the address without token."""
    host = "127.0.0.1:" + address.split(":")[2].partition("/")[0]
    path, _, token = address.split("/", 3)[3].partition("?trainyard_token=")
    request = urllib.request.Request(
        f"http://{host}/{path}", headers={"Host": "jobs.localhost", "Cookie": f"trainyard-port={token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
