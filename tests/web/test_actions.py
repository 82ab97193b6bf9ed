"""Actions that no other test of a page carries out, and proof that browsers carry out every one there is."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.http.context import dialect_of
from app.models import StuckDevice
from app.models.base import utc_now
from app.web.dialect import WEB
from tests.builders.factories import make_job, make_node
from tests.builders.shards import batch_document
from tests.doubles.mail_server import mail_server
from tests.systems.apps import Api
from tests.systems.engines import engine_on
from tests.systems.running_up import wait_until
from tests.web.presses import Presses
from tests.web.site import DOCUMENT, Site

FAILS = "raise SystemExit(3)"


@pytest.fixture
def db(site: Site) -> Iterator[Database]:
    """The database of the system, for what no request can bring about."""
    opened = Database().bind(engine_on(site.database_url))
    yield opened
    opened.close()


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()


def agree(page: Page, name: str) -> None:
    """Press a button that asks, and agree."""
    press(page, name)
    page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()


def notice(page: Page, text: str) -> None:
    expect(page.locator("#notices")).to_contain_text(text)


# ---- administration


def test_a_project_is_made_described_and_deleted(page: Page) -> None:
    page.goto("/ui/admin/projects")
    page.get_by_text("Create a project").click()
    page.get_by_label("Name").fill("short-lived")
    page.get_by_label("Volume claims").select_option("existing ones only")
    press(page, "Create the project")
    notice(page, "The project short-lived is made.")
    expect(page.locator("dl.facts")).to_contain_text("existing ones only")
    page.get_by_label("Volume claims").select_option("jobs may create missing ones")
    page.get_by_label("Description").fill("for a moment")
    press(page, "Save")
    notice(page, "Saved.")
    expect(page.locator("dl.facts")).to_contain_text("jobs may create missing ones")
    expect(page.locator("dl.facts")).to_contain_text("for a moment")
    agree(page, "Delete the project")

    notice(page, "The project short-lived is deleted")


def test_a_queue_is_made_limited_paused_and_opened(page: Page, site: Site) -> None:
    page.goto("/ui/admin/queues")
    page.get_by_text("Create a queue").click()
    page.get_by_label("Name").fill("by-hand")
    press(page, "Create the queue")
    notice(page, "The queue by-hand is made.")
    page.get_by_role("link", name="by-hand").click()
    page.get_by_label("Weight").fill("2")
    press(page, "Save")
    notice(page, "Saved.")
    press(page, "Pause")
    notice(page, "The queue by-hand")
    assert site.ask("GET", "/v1/queues/by-hand")["paused"]
    page.get_by_role("row", name="by-hand").get_by_role("button", name="Resume").click()

    notice(page, "starts jobs again")


def test_a_key_is_rotated(page: Page, site: Site) -> None:
    made = site.ask("POST", "/v1/keys", {"role": "user", "project": "default", "name": "rotated"})
    page.goto(f"/ui/admin/keys/{made['key_id']}")
    press(page, "Rotate")

    expect(page.get_by_text("shown only this once")).to_be_visible()


def test_other_sign_ins_are_ended(context: BrowserContext, site: Site) -> None:
    page = context.new_page()
    site.sign_in(page, site.key)
    for path, act in (("/ui/sessions", press), ("/ui/admin/sign-ins", agree)):
        assert context.browser is not None
        other = context.browser.new_context(base_url=site.url)
        theirs = other.new_page()
        site.sign_in(theirs, site.key)
        page.goto(path)
        act(page, "End")  # the newest one
        notice(page, "The sign-in has ended.")
        theirs.goto("/ui/jobs")
        expect(theirs).to_have_url(f"{site.url}/ui/login?next=/ui/jobs")
        other.close()


def test_an_email_is_tested_sent_again_and_its_webhook_changed_and_deleted(
    page: Page, site: Site, tmp_path: Path
) -> None:
    page.goto("/ui/admin/webhooks")
    page.get_by_text("Send events by email").click()
    form = page.locator("form", has=page.get_by_label("Recipients"))
    form.get_by_label("Recipients").fill("ana@example.org bo@elsewhere.example")
    form.get_by_role("button", name="Create it").click()
    expect(page.get_by_role("alert")).to_contain_text("TRAINYARD_SMTP_DOMAINS are example.org")
    form.get_by_label("Recipients").fill("ana@example.org")
    form.get_by_role("checkbox", name="FAILED", exact=True).check()
    form.get_by_role("button", name="Create it").click()
    expect(page.get_by_text("Events are sent as emails to ana@example.org.")).to_be_visible()
    page.get_by_role("link", name="To the webhook").click()
    with mail_server(tmp_path, security="none", port=site.mail_port) as server:
        press(page, "Send a test event")
        wait_until(lambda: len(server.messages) == 1, 90)
        wait_until(lambda: _delivered(site, page) == 1, 90)
        page.reload()
        press(page, "Send again")
        notice(page, "The event is sent again.")
        wait_until(lambda: len(server.messages) == 2, 90)
        wait_until(lambda: _delivered(site, page) == 2, 90)
    assert server.messages[0]["Subject"] == "[Trainyard] Trainyard: webhook.test"

    page.get_by_text("Change it").click()
    page.get_by_label("Recipients").fill("cy@example.org")
    press(page, "Save")
    notice(page, "Saved.")
    expect(page.locator("dl.facts")).to_contain_text("cy@example.org")
    agree(page, "Delete the webhook")
    notice(page, "The webhook is deleted.")


def _delivered(site: Site, page: Page) -> int:
    hook = page.url.rpartition("/")[2].partition("?")[0]
    return int(site.ask("GET", f"/v1/webhooks/{hook}/deliveries?state=delivered")["total_count"])


# ---- jobs, evaluations, sweeps


def test_selected_jobs_are_paused(page: Page, site: Site) -> None:
    site.ask("POST", "/v1/queues", {"name": "opens-later", "paused": True})
    # It stays QUEUED, from where every pause is accepted: a job that trains has to say first that it can save.
    site.submit("bulk-pause", scheduling_config={"queue": "opens-later"})
    page.goto("/ui/jobs?name=bulk-pause")
    page.get_by_label("Select bulk-pause").check()
    page.get_by_role("group", name="Selected jobs").get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Pause jobs").click()

    expect(page.locator("#results")).to_contain_text("1 of 1 job: the pause is accepted")


def test_data_is_read_before_a_job_is_submitted(page: Page) -> None:
    page.goto("/ui/submit")
    page.fill("#document", json.dumps({**DOCUMENT, "name": "previewed"}))
    press(page, "Preview data")

    expect(page.locator("#data")).not_to_be_empty(timeout=120_000)


def test_an_evaluation_is_created_cancelled_and_deleted(page: Page, site: Site, db: Database) -> None:
    page.goto("/ui/evaluations/new")
    made = {
        "name": "by form",
        "model": {"model_uri": "org/no-such-model"},
        "benchmarks": [{"name": "perplexity", "dataset": "examples/cluster/data.jsonl"}],
    }
    page.fill("#document", json.dumps(made))
    press(page, "Create evaluation")
    page.wait_for_url("**/ui/evaluations/job-*")
    site.ask("POST", "/v1/queues", {"name": "closed", "paused": True})
    with db.write() as session:
        waiting = make_job(session, document=batch_document(benchmarks=1), state=JobState.QUEUED, queue="closed").id

    page.goto(f"/ui/evaluations/{waiting}")
    agree(page, "Cancel evaluation")
    notice(page, "The evaluation is being cancelled.")
    agree(page, "Delete")
    notice(page, "The evaluation and its files are deleted.")


def test_a_sweep_and_its_trials_are_steered(page: Page, site: Site) -> None:
    script = site.running.data_dir.parent / "steered.py"
    script.write_text(
        "import time\nfrom trainyard import hooks\nrun = hooks.init()\n"
        "for step in range(1, 900):\n    run.log_metrics({'loss': 1 / step}, step=step)\n    time.sleep(1)\n"
    )
    document: dict[str, Any] = {
        "name": "steered",
        "job": {
            "training_config": {"framework": {"type": "CUSTOM", "custom_script_path": script.name}},
            "resource_config": {"gpu_count": 1, "gpu_type": "a100"},
        },
        "parameters": {"rate": {"type": "double", "min": 0.1, "max": 0.2}},
        "objective": {"metric": "loss", "goal": "minimize"},
        "method": {"name": "random", "seed": 1},
        "early_stopping": {"name": "median", "min": 500, "max": 800},
        "budget": {"max_trials": 8, "parallel_trials": 2},
    }
    sweep = site.ask("POST", "/v1/sweeps", document)["sweep_id"]
    trials = f"/v1/sweeps/{sweep}/trials?state=RUNNING"
    wait_until(lambda: site.ask("GET", trials)["total_count"] == 2, 180)
    page.goto(f"/ui/sweeps/{sweep}")

    press(page, "Pause")
    notice(page, "The sweep is paused.")
    press(page, "Resume")
    notice(page, "The sweep runs again.")
    press(page, "Keep running")
    notice(page, "is not stopped early any more")
    agree(page, "End early")
    notice(page, "ends early")
    agree(page, "Stop after the running trials")
    notice(page, "makes no new trial")
    press(page, "Cancel sweep")
    with page.expect_response(f"**/ui/sweeps/{sweep}"):
        page.locator("#sweep").dispatch_event("live")
    with page.expect_response(f"**/ui/sweeps/{sweep}"):  # what was not shown meanwhile, however short the question was
        page.get_by_role("dialog").get_by_role("button", name="Keep as it is").click()
    press(page, "Cancel sweep")
    with page.expect_response(
        f"**/ui/sweeps/{sweep}"
    ):  # a change while the question is open keeps nothing from being sent
        page.locator("#sweep").dispatch_event("live")
    page.get_by_role("dialog").get_by_role("button", name="Cancel sweep", exact=True).click()
    notice(page, "are being cancelled")


# ---- running jobs and nodes


def test_a_session_is_ended_and_a_job_that_was_kept_released(page: Page, site: Site) -> None:
    running = site.submit("is-entered")
    site.wait_for(running, "TRAINING")
    site.ask("POST", f"/v1/jobs/{running}/sessions", {"kind": "exec", "command": ["true"]})
    page.goto(f"/ui/jobs/{running}/access")
    press(page, "End")
    notice(page, "The session ends.")

    kept = site.submit_script("is-kept", FAILS, interactive_config={"keep_on_failure_seconds": 600})
    wait_until(lambda: site.ask("GET", f"/v1/jobs/{kept}")["kept_until"], 180)
    page.goto(f"/ui/jobs/{kept}/access")
    agree(page, "Release")
    notice(page, "The job ends as it would have")
    site.wait_for(kept, "FAILED")  # and not in a later test, which may wait for an email about what failed


def test_devices_are_put_back_and_a_lost_node_is_removed(page: Page, db: Database) -> None:
    long_ago = utc_now() - timedelta(hours=1)
    with db.write() as session:
        make_node(session, "away-1", devices=1, device_type="h100", state="lost")
        session.add(
            StuckDevice(node="away-1", device_index=0, job_id="gone", attempt=1, since=long_ago, seen_at=long_ago)
        )
    page.goto("/ui/nodes/away-1")

    agree(page, "Put devices back")
    notice(page, "1 device is in service again.")
    agree(page, "Remove")
    notice(page, "away-1 is removed.")


# ---- all of them


def test_every_action_was_carried_out(presses: Presses, sqlite_url: str, tmp_path: Path) -> None:
    """Runs last; a new action needs a test in which a browser sends its form."""
    if presses.is_second_go:
        pytest.fail("what is missing cannot be seen by a part of the tests: run all of the dashboard's again")
    if not presses.is_whole_run:
        pytest.skip("only of a run of all tests of the dashboard")
    bound = Database().bind(engine_on(sqlite_url))
    api = Api(bound, tmp_path, TRAINYARD_WEB_ENABLED="true")
    rules = [rule for rule in api.app.url_map.iter_rules() if "POST" in (rule.methods or ())]
    actions = {rule.rule for rule in rules if dialect_of(api.app, rule.rule) is WEB}
    routes = api.app.url_map.bind("localhost")
    carried_out = {
        routes.match(path, method="POST", return_rule=True)[0].rule for path in presses.paths if path.startswith("/ui/")
    }
    api.close()
    bound.close()

    assert sorted(actions - carried_out) == []
