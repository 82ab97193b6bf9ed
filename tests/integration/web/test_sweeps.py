"""Pages of sweeps: the list, one with its trials and figures, and its actions."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.lifecycle.states import JobState
from app.domain.sweeps.states import SweepState, TrialState
from app.models import AuditEntry, Sweep
from tests.builders.factories import make_job
from tests.builders.sweeps import make_sweep, make_sweep_document, make_trial
from tests.integration.web.conftest import Browser

TWO = [{"metric": "eval_loss"}, {"metric": "rank_memory_mb_max", "goal": "minimize"}]
ASHA = {"name": "asha", "unit": "steps", "min": 3, "max": 27, "reduction": 3}
MOST_ELEMENTS = 2000  # of a page
PARTIAL = {"HX-Request": "true"}


def sweep_of(web: Browser, losses: Sequence[float] = (0.5, 0.25), **document: Any) -> str:
    """A running sweep whose trials have completed with these values, and one that runs."""
    with web.api.db.write() as session:
        made = make_sweep_document(**document) | {"name": "search"}
        sweep = make_sweep(session, document=made)
        sweep.status = SweepState.RUNNING
        for loss in losses:
            measured = [loss, 100.0] if isinstance(document.get("objective"), list) else [loss]
            make_trial(session, sweep, values={"learning_rate": loss / 100}, objectives=measured)
        make_trial(session, sweep, values={"learning_rate": 0.125}, state=TrialState.RUNNING)
        return str(sweep.id)


def status_of(web: Browser, sweep_id: str) -> str:
    with web.api.db.read() as session:
        return session.get_one(Sweep, sweep_id).status


def test_the_list_has_names_states_and_filters(web: Browser, viewer: Browser):
    sweep_id = sweep_of(web)

    page = viewer.get("/ui/sweeps")
    assert f"/ui/sweeps/{sweep_id}" in page.links
    assert "RUNNING minimize eval_loss" in page.text
    assert "search" not in viewer.get("/ui/sweeps?status=PAUSED&name=").text
    assert "search" in viewer.get("/ui/sweeps?status=RUNNING&name=search").text
    viewer.get("/ui/sweeps?status=WRONG", 422)


def test_a_sweep_shows_its_trials_and_the_best(viewer: Browser, web: Browser):
    page = viewer.get(f"/ui/sweeps/{sweep_of(web)}")

    assert "2 completed" in page.text
    assert "learning_rate = 0.125" in page.text
    assert "Early stopping by rung" not in page.text
    assert "Cancel sweep" not in page.text


def test_trials_are_filtered_ordered_and_paged(web: Browser):
    sweep_id = sweep_of(web, [0.5, 0.25, 0.75])

    completed = web.get(f"/ui/sweeps/{sweep_id}?state=COMPLETED&order_by=value&page_size=2")
    assert completed.text.index("learning_rate = 0.0025") < completed.text.index("learning_rate = 0.005")
    assert "learning_rate = 0.0075" not in completed.text
    rest = web.get(next(link for link in completed.links if "page_token" in link))
    assert "learning_rate = 0.0075" in rest.text


def test_a_page_of_a_large_space_has_all_values_and_few_elements(web: Browser):
    space = {f"parameter_{number}": {"type": "double", "min": 0, "max": 1} for number in range(30)}
    with web.api.db.write() as session:
        document = make_sweep_document(parameters=space, early_stopping=ASHA)
        sweep = make_sweep(session, document=document, status=SweepState.RUNNING)
        for number in range(50):
            values = dict.fromkeys(space, number / 64)
            job = make_job(session, state=JobState.TRAINING, sweep_id=sweep.id)
            make_trial(session, sweep, values=values, state=TrialState.RUNNING, job_id=job.id)
        sweep_id = str(sweep.id)

    page = web.get(f"/ui/sweeps/{sweep_id}")

    assert len(re.findall(r"<[a-z]", page.html)) <= MOST_ELEMENTS
    assert page.text.count("parameter_29 = 0.3125") == page.text.count("parameter_0 = 0.3125") == 1
    assert "Keep running" in page.text


def test_a_part_replaces_the_page_while_it_runs(web: Browser):
    part = web.get(f"/ui/sweeps/{sweep_of(web)}", headers=PARTIAL)

    assert part.html.lstrip().startswith('<div id="sweep" data-live="sweep:')
    assert "<html" not in part.html


@pytest.mark.parametrize("name", ["history", "parallel", "importance", "slice"])
def test_figures_are_pictures(viewer: Browser, web: Browser, name: str):
    answer = viewer.client.get(f"/ui/sweeps/{sweep_of(web)}/figures/{name}.svg?at=1")

    assert (answer.status_code, answer.mimetype) == (200, "image/svg+xml")
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "<script" not in answer.get_data(as_text=True)


def test_sweeps_of_several_objectives_have_a_front_and_rungs_where_they_stop_early(web: Browser):
    two = web.get(f"/ui/sweeps/{sweep_of(web, objective=TWO)}")
    assert "Pareto front" in two.text
    assert "Trial 1: eval_loss 0.25, rank_memory_mb_max 100" in two.text
    one = sweep_of(web, early_stopping=ASHA)
    assert "Early stopping by rung" in web.get(f"/ui/sweeps/{one}").text
    assert web.client.get(f"/ui/sweeps/{one}/figures/rungs.svg").status_code == 200
    assert web.client.get(f"/ui/sweeps/{one}/figures/front.svg").status_code == 400
    assert web.client.get(f"/ui/sweeps/{one}/figures/none.svg").status_code == 404


def test_actions_change_the_sweep_and_are_audited(member: Browser, web: Browser):
    sweep_id = sweep_of(web, [])
    member.get(f"/ui/sweeps/{sweep_id}")

    assert member.act(f"/ui/sweeps/{sweep_id}/pause", {"trials": "finish"}) == "The sweep is paused."
    assert status_of(web, sweep_id) == "PAUSED"
    assert "Resume" in member.get(f"/ui/sweeps/{sweep_id}").text
    assert member.act(f"/ui/sweeps/{sweep_id}/resume") == "The sweep runs again."
    member.act(f"/ui/sweeps/{sweep_id}/stop")
    assert status_of(web, sweep_id) == "FINISHING"
    member.act(f"/ui/sweeps/{sweep_id}/cancel", {"reason": "enough"})
    with web.api.db.read() as session:
        assert session.get_one(Sweep, sweep_id).ends_as == "CANCELLED"
        audited = session.scalars(select(AuditEntry.action).where(AuditEntry.target == sweep_id)).all()
    assert audited.count("sweep.status") == 3
    assert member.post(f"/ui/sweeps/{sweep_id}/pause").status_code == 409


def test_viewers_change_no_sweep_and_other_projects_are_not_seen(viewer: Browser, member: Browser, web: Browser):
    mine = sweep_of(web)
    with web.api.db.write() as session:
        foreign = make_sweep(session, document=make_sweep_document() | {"name": "secret"}, project="other").id
    viewer.get(f"/ui/sweeps/{mine}")
    for action in ("pause", "resume", "stop", "cancel", "trials/0/stop", "trials/0/promote"):
        assert viewer.post(f"/ui/sweeps/{mine}/{action}").status_code == 403
        assert member.post(f"/ui/sweeps/{foreign}/{action}").status_code in (403, 404)
    member.get(f"/ui/sweeps/{foreign}", 404)
    assert member.client.get(f"/ui/sweeps/{foreign}/figures/history.svg").status_code == 404
    assert "secret" not in member.get("/ui/sweeps").text


def test_names_are_text(web: Browser):
    with web.api.db.write() as session:
        sweep = make_sweep(session, document=make_sweep_document())
        sweep.name, sweep.pending_reason, sweep.status = "<img src=x onerror=alert(1)>", "<b>full</b>", "RUNNING"
        sweep_id = sweep.id

    for path in ("/ui/sweeps", f"/ui/sweeps/{sweep_id}"):
        html = web.get(path).html
        assert "<img src=x" not in html
        assert "<b>full" not in html
