"""Pages of a job with roles: its instances, the lines of a role, and the form, which loses nothing of it."""

from html import unescape
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job
from app.models.base import utc_now
from app.services.scheduling import planner
from app.storage.log_writer import LogWriter
from app.web.roles import role_form
from tests.builders.factories import make_document, make_node
from tests.builders.log_blocks import block
from tests.integration.web.conftest import Browser
from tests.integration.web.test_submit import checked, document_of

TASKS: list[dict[str, Any]] = [
    {"role": "trainer", "resource_config": {"gpu_count": 2}},
    {
        "role": "rollout",
        "count": 2,
        "depends_on": ["trainer"],
        "restart": "task",
        "sidecar": True,
        "training_config": {"custom_command": ["true", "a,b"], "environment": {"SIZE": "3"}},
    },
]


def document(**changes: Any) -> dict[str, Any]:
    made = make_document(training_config={"framework": {"type": "CUSTOM", "custom_command": ["true"]}})
    return {**made, "resource_config": {}, "tasks": TASKS, **changes}


@pytest.fixture
def job_id(web: Browser) -> str:
    with web.api.db.write() as session:
        make_node(session, "n1")
        make_node(session, "n2")
    return str(web.api.data(web.api.post("/v1/jobs", document()), 201)["job_id"])


def place(web: Browser, job_id: str) -> None:
    with web.api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.queued_at = JobState.QUEUED, utc_now()
    planner.plan_once(web.api.db)


def test_the_overview_has_a_line_for_each_instance(web: Browser, job_id: str):
    before = web.get(f"/ui/jobs/{job_id}")
    place(web, job_id)
    after = web.get(f"/ui/jobs/{job_id}")

    assert "the job has not been placed on a node" in before.text
    assert "trainer: 2 devices; rollout: 1 device for each of 2 instances" in after.text
    rows = after.html.split('id="instances"', 1)[1].split("<tbody>", 1)[1].split("</tbody>", 1)[0]
    assert rows.count("<tr>") == 3
    assert rows.count("waits") == 3
    assert f"/ui/jobs/{job_id}/log?role=rollout" in after.links


def test_an_instance_that_has_ended_shows_its_exit_code_and_what_it_used(web: Browser, job_id: str):
    place(web, job_id)
    with web.api.db.write() as session:
        attempt = session.get_one(Attempt, (job_id, 1))
        ended = {"exit_code": 7, "cpu_seconds": 65.0, "peak_memory_mb": 2048.0}
        attempt.instances = [{**row, **(ended if row["role"] == "trainer" else {})} for row in attempt.instances or ()]
        attempt.started_at = utc_now()

    text = web.get(f"/ui/jobs/{job_id}").text

    assert "ended, exit code 7" in text
    assert "2.1 GB" in text
    assert "runs" in text


def test_the_log_is_of_one_role_where_that_is_chosen(web: Browser, job_id: str):
    storage = web.api.app.extensions["trainyard"].plane.storage
    LogWriter(storage, job_id, 1).append([block(n + 1, f"line of {n}", rank=n) for n in range(4)])

    page = web.get(f"/ui/jobs/{job_id}/log?role=rollout")
    of_role = web.json(f"/ui/jobs/{job_id}/log/lines.json?attempt=1&role=rollout&first=1&last=10")
    found = web.json(f"/ui/jobs/{job_id}/log/search.json?attempt=1&role=rollout&q=line")
    text = web.client.get(f"/ui/jobs/{job_id}/log.txt?role=rollout").get_data(as_text=True)

    assert 'data-role="rollout"' in page.html
    assert "2 – rollout 0" in page.text
    assert f"/ui/jobs/{job_id}/log.txt?attempt=1&role=rollout" in page.links
    assert [line[2] for line in of_role["lines"]] == [2, 3]
    assert [line["rank"] for line in found["lines"]] == [2, 3]
    assert [line.split("] ")[1] for line in text.splitlines()] == ["line of 2", "line of 3"]


@pytest.mark.parametrize(("query", "status"), [("role=other", 400), ("role=trainer&rank=0", 400), ("role=A", 422)])
def test_a_role_that_the_job_does_not_have_is_refused(web: Browser, job_id: str, query: str, status: int):
    page = web.get(f"/ui/jobs/{job_id}/log?{query}", status)

    assert "role" in page.text


def test_a_copy_keeps_all_of_the_roles_and_shows_a_row_for_each(web: Browser, job_id: str):
    page = web.get(f"/ui/submit?clone={job_id}")

    copied = document_of(page)["tasks"]
    for given, kept in zip(TASKS, copied, strict=True):
        for name, value in given.items():
            part = {each: kept[name][each] for each in value} if isinstance(value, dict) else kept[name]
            assert part == value
    assert 'data-path="tasks.1.sidecar"' in page.html
    assert 'data-path="tasks.2.role"' not in page.html


def test_a_retry_names_the_command_that_changes_roles(web: Browser, job_id: str):
    page = web.get(f"/ui/jobs/{job_id}/retry")

    assert f"trainyard retry {job_id} --resource ROLE.FIELD=VALUE" in page.text
    assert 'name="start"' in page.html
    assert not [name for name in ("gpu_count", "node_count", "gpu_type") if f'name="{name}"' in page.html]


def test_rows_are_made_for_as_many_roles_as_the_document_has(web: Browser):
    none, two = web.get("/ui/submit/roles?framework=CUSTOM"), web.get("/ui/submit/roles?framework=CUSTOM&row=0&row=1")

    assert "The job runs one program" in none.text
    assert 'data-made=" CUSTOM 0 1"' in two.html  # as the script counts them
    many = web.get("/ui/submit/roles?framework=CUSTOM" + "".join(f"&row={n}" for n in range(17)))
    assert 'data-made=" CUSTOM 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"' in many.html  # or it would ask again
    assert 'data-path="tasks.16.role"' not in many.html  # a document may have 16
    assert 'data-path="tasks.1.resource_config.gpu_count"' in two.html
    assert all(field.meaning for field in role_form.rows(1)[0].fields)


def test_roles_that_are_added_to_a_training_are_its_programs(web: Browser):
    """A role without a program would be refused."""
    query = "/ui/submit/roles?framework=HF_TRAINER&training_type=RLHF"
    first, second = web.get(query), web.get(f"{query}&row=0")

    assert '"program": "train"' in unescape(first.html)
    assert '"program": "rollout"' in unescape(second.html)
    assert 'data-path="tasks.0.program"' in second.html
    assert '"role": "worker"' in unescape(web.get("/ui/submit/roles?framework=CUSTOM&row=0").html)


def test_the_check_says_where_each_instance_would_start(web: Browser, job_id: str):
    text = checked(web, document(name="another")).text
    assert "It can start now" in text
    assert "trainer 0 on n1; rollout 0 on n2; rollout 1 on n2" in text

    large = [{**TASKS[0], "resource_config": {"gpu_count": 300}}, TASKS[1]]
    wrong = checked(web, document(tasks=large)).html
    assert 'data-field="tasks.0.resource_config.gpu_count"' in wrong
