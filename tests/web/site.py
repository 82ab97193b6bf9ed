"""The system that tests of the dashboard ask: its address, its keys, and jobs that only count."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.systems.running_up import RunningUp, wait_until

DOCUMENT: dict[str, Any] = {
    "training_config": {"framework": {"type": "CUSTOM", "custom_script_path": "examples/cluster/count.py"}},
    "data_config": {"sources": [{"path": "examples/cluster/data.jsonl"}]},
    "resource_config": {"gpu_count": 1},
}


def wait_for(page: Page, expression: str) -> None:
    """Until the script's value is true. Playwright's own way evaluates text in the page, which its policy forbids."""
    for _ in range(150):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"still not true: {expression}")


class Site:
    def __init__(self, running: RunningUp, mail_port: int = 0) -> None:
        self.running, self.mail_port = running, mail_port
        self.url, self.key = running.url, running.key

    def ask(self, method: str, path: str, body: Any = None, *, key: str = "") -> Any:
        """The data of a successful answer of the API."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
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

    def wait_for(self, job_id: str, *states: str, seconds: float = 60.0) -> None:
        wait_until(lambda: self.status(job_id) in states, seconds)

    def project(self, name: str, role: str = "user") -> str:
        """A key of a new project."""
        self.ask("POST", "/v1/projects", {"name": name})
        return str(self.ask("POST", "/v1/keys", {"role": role, "project": name})["key"])

    def sign_in(self, page: Page, key: str) -> None:
        page.goto("/ui/login")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
