"""The system that tests of the dashboard ask: its address, its keys, and jobs that only count."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from app.domain.lifecycle import states as job_states
from app.domain.lifecycle.states import JobState
from app.domain.sweeps import states as sweep_states
from app.domain.sweeps.states import SweepState
from tests.systems.running_up import RunningUp, wait_until

DOCUMENT: dict[str, Any] = {
    "training_config": {"framework": {"type": "CUSTOM", "custom_script_path": "examples/cluster/count.py"}},
    "data_config": {"sources": [{"path": "examples/cluster/data.jsonl"}]},
    "resource_config": {"gpu_count": 1},
}

LIVE = {
    "sweeps": ",".join(set(SweepState) - sweep_states.TERMINAL),
    "jobs": ",".join(set(JobState) - job_states.TERMINAL),
}
PATIENCE_MS = 60_000  # of a browser: only what has failed takes that long, and a busy machine is no failure


# For add_init_script: a page hears only of the changes that a test feeds it.
FEEDS = """window.EventSource = class {
    constructor() {
        window.feed = (...changed) => this.onmessage({data: JSON.stringify({changed, id: "", pace: 1})});
        setTimeout(() => this.onopen());
    }
    close() {}
}"""


def wait_for(page: Page, expression: str) -> None:
    """Until the script's value is true. Playwright's own way evaluates text in the page, which its policy forbids."""
    for _ in range(PATIENCE_MS // 100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"still not true: {expression}")


class Site:
    def __init__(self, running: RunningUp, mail_port: int = 0) -> None:
        self.running, self.mail_port = running, mail_port
        self.url, self.key = running.url, running.key
        self._shared: set[str] = set()
        self._given_back: set[str] = set()

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.running.data_dir / 'trainyard.db'}"

    def ask(self, method: str, path: str, body: Any = None, *, key: str = "") -> Any:
        """The data of a successful answer of the API."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = answer.read()
        return json.loads(content)["data"] if content else None

    def submit(self, name: str, *, steps: int = 600, key: str = "", **changes: Any) -> str:
        """The id of a new job that counts a step a second."""
        training = {**DOCUMENT["training_config"], "hyperparameters": {"steps": str(steps)}}
        body = {**DOCUMENT, "name": name, "training_config": training, **changes}
        return str(self.ask("POST", "/v1/jobs", body, key=key)["job_id"])

    def submit_script(self, name: str, source: str, **changes: Any) -> str:
        """The id of a new job that runs this Python source."""
        script = Path(self.running.data_dir).parent / f"{name}.py"
        script.write_text(source)
        training = {"framework": {"type": "CUSTOM", "custom_script_path": script.name}}
        return str(
            self.ask("POST", "/v1/jobs", {**DOCUMENT, "name": name, "training_config": training, **changes})["job_id"]
        )

    def status(self, job_id: str) -> str:
        return str(self.ask("GET", f"/v1/jobs/{job_id}")["status"])

    def wait_for(self, job_id: str, *states: str, seconds: float = 180.0) -> None:
        wait_until(lambda: self.status(job_id) in states, seconds)

    def wait_until_it_counts(self, job_id: str) -> None:
        """Until its script has begun: a job may be TRAINING before its script has said that it can save."""
        wait_until(lambda: self.ask("GET", f"/v1/jobs/{job_id}")["current_step"] > 0, 180)

    def remember(self) -> None:
        """What runs now is no test's own, but of fixtures that tests share; or it ends."""
        self._shared = self._live() - self._given_back

    def give_back(self) -> None:
        """Cancel the sweeps and jobs that are new."""
        made = self._live() - self._shared - self._given_back
        self.cancel(sorted(made, reverse=True))  # sweeps first, which would make new trials
        self._given_back |= made

    def cancel(self, paths: Iterable[str]) -> None:
        """Cancel these sweeps and jobs; some of them may have ended."""
        for path in paths:
            try:
                self.ask("POST", f"{path}/cancel", {})
            except urllib.error.HTTPError as error:
                if error.code != HTTPStatus.CONFLICT:
                    raise

    def wait_until_others_end(self) -> None:
        """For what needs many devices: jobs of the tests before may hold some until they have stopped."""
        wait_until(lambda: self._live() <= self._shared, 180)

    def _live(self) -> set[str]:
        """Paths of the sweeps and jobs that have not ended."""
        found = set()
        for kind, states in LIVE.items():
            rows = self.ask("GET", f"/v1/{kind}?page_size=100&status={states}")[kind]
            found |= {f"/v1/{kind}/{row[f'{kind[:-1]}_id']}" for row in rows}
        return found

    def project(self, name: str, role: str = "user") -> str:
        """A key of a new project."""
        self.ask("POST", "/v1/projects", {"name": name})
        return str(self.ask("POST", "/v1/keys", {"role": role, "project": name})["key"])

    def sign_in(self, page: Page, key: str) -> None:
        page.goto("/ui/login")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
