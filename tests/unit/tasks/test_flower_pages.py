"""The pages of the Flower that is installed are the ones our changes were made for."""

from pathlib import Path

import pytest
from flower import urls
from tornado.template import Template

from tasks.flower_pages import ENDED, TEMPLATE_PATCHES, GuardedMetrics, JobPages, guarded, patched


def original(name: str) -> str:
    return Path(urls.settings["template_path"], name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "before"), [(name, before) for name, all_ in TEMPLATE_PATCHES.items() for before, _ in all_]
)
def test_each_change_finds_its_place_once(name: str, before: str) -> None:
    assert original(name).count(before) == 1


@pytest.mark.parametrize("name", ["task.html", "tasks.html", "base.html", "workers.html"])
def test_every_page_is_still_a_template(name: str) -> None:
    assert isinstance(JobPages(urls.settings["template_path"]).load(name), Template)


def test_other_pages_are_left_alone() -> None:
    assert patched("workers.html", original("workers.html")) == original("workers.html")


def test_metrics_with_the_names_of_jobs_are_behind_the_login() -> None:
    handlers = guarded(urls.handlers)

    assert [one[1] for one in handlers if isinstance(one, tuple) and one[0] == "/metrics"] == [GuardedMetrics]
    assert len(handlers) == len(urls.handlers)


@pytest.mark.parametrize(
    ("state", "offers"), [("QUEUED", True), ("TRAINING", True), ("PAUSED", True), *((state, False) for state in ENDED)]
)
def test_a_job_that_has_not_ended_can_be_cancelled(state: str, offers: bool) -> None:  # noqa: FBT001 – a table's column
    page = patched("task.html", original("task.html"))
    actions = page.partition('<div class="detail-actions">')[2].partition("</div>")[0]
    task = type("Task", (), {"uuid": "job-1", "state": state})

    shown = Template(actions).generate(task=task, read_only=False).decode()

    assert ("Cancel job" in shown) is offers
