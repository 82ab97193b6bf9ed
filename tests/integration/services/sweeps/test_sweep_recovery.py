"""What must not go wrong with a sweep: requests at odd moments, refused documents, other projects and secrets."""

from collections.abc import Callable

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Sweep
from app.security.permissions import Role
from app.services.sweeps import stepping
from tests.builders.sweep_runs import SweepRun
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

Make = Callable[..., SweepRun]


def test_a_resume_that_comes_while_a_trial_still_saves_resumes_it_when_it_is_paused(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 1, "parallel_trials": 1})
    run.step()
    run.train(0, to=3)
    api.data(api.post(f"/v1/sweeps/{run.id}/pause"))
    api.data(api.post(f"/v1/sweeps/{run.id}/resume"))
    run.step()
    assert run.job(0).requested == "pause"

    run.end(0, JobState.PAUSED)
    run.step()
    assert (run.job(0).status, run.sweep().status) == ("QUEUED", "FINISHING")
    run.run()
    assert run.sweep().status == "COMPLETED"


def test_a_larger_budget_lets_a_sweep_continue_whose_last_trial_still_runs(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 1, "parallel_trials": 1})
    run.step()
    run.step()
    assert run.sweep().status == "FINISHING"
    changed = api.data(api.call("PATCH", f"/v1/sweeps/{run.id}", json={"budget": {"max_trials": 2}}))
    assert changed["status"] == "RUNNING"
    run.run()

    assert (len(run.trials()), run.sweep().status) == (2, "COMPLETED")


def test_refused_trials_fail_the_sweep_and_are_not_made_without_end(make_run: Make) -> None:
    run = make_run(budget={"max_trials": 50, "parallel_trials": 2})
    with run.db.write() as session:
        sweep = session.get_one(Sweep, run.id)
        training = {**sweep.base["training_config"], "base_model": {"model_id": "/nowhere/model"}}
        sweep.base = {**sweep.base, "training_config": training}
    for _ in range(10):
        run.step()

    assert (run.sweep().status, run.states()) == ("FAILED", ["FAILED"] * 3)
    assert run.sweep().status_reason.startswith("the first 3 trials failed alike: ")


def test_a_sweep_that_fails_to_advance_holds_up_no_other(make_run: Make) -> None:
    broken, sound = make_run(), make_run()
    with broken.db.write() as session:
        session.get_one(Sweep, broken.id).spec = {}

    stepping.step_all(sound.plane, sound.suggestions, stepping.active(sound.db))

    assert len(sound.trials()) == 2


def test_a_dry_run_shows_nothing_of_another_project(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 1, "parallel_trials": 1})
    run.run()
    key = api.make_key(Role.ADMIN, "team-b")
    document = make_sweep_document(warm_start={"sweeps": [run.id], "kind": "transfer"})

    answer = api.post("/v1/sweeps?project=default&dry_run=true", document, key=key)

    assert api.problem(answer, 404)["message"] == "no project default"


def test_what_every_trial_replaces_is_not_stored(make_run: Make, api: Api) -> None:
    job = make_sweep_document()["job"]
    job["training_config"]["environment"] = {"DB": "postgres://me:s3cret@host/x"}
    run = make_run(
        job=job,
        parameters={
            "learning_rate": {"type": "double", "min": 1e-5, "max": 1e-2, "scale": "log"},
            "environment.DB": {"type": "categorical", "values": ["first", "second"]},
        },
    )
    run.step()

    assert "s3cret" not in api.call("GET", f"/v1/sweeps/{run.id}").get_data(as_text=True)
    assert "s3cret" not in str(run.sweep().base) + str(run.sweep().spec)
    assert run.job(0).document.training_config.environment["DB"] in ("first", "second")


@pytest.mark.both_databases
def test_a_deleted_job_leaves_its_trial(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 1, "parallel_trials": 1})
    run.run()
    assert api.call("DELETE", f"/v1/jobs/{run.trials()[0].job_id}").status_code == 204

    trial = api.get(f"/v1/sweeps/{run.id}/trials/0")
    assert (trial["job_id"], trial["state"], trial["job_status"]) == (None, "COMPLETED", None)


@pytest.mark.both_databases
def test_sweeps_are_listed_by_labels_and_by_their_time(make_run: Make, api: Api) -> None:
    first = make_run(labels={"team": "a", "kind/of": "b.c"})
    second = make_run(labels={"team": "a"})
    created = api.get(f"/v1/sweeps/{second.id}")["created_at"]

    def found(query: str) -> list[str]:
        return sorted(each["sweep_id"] for each in api.get(f"/v1/sweeps?{query}")["sweeps"])

    assert found("labels.team=a") == sorted([first.id, second.id])
    assert found("labels.team=a&labels.kind/of=b.c") == [first.id]
    assert found("labels.team=b") == found("labels.missing=a") == []
    assert found(f"created_before={created}") == [first.id]
    assert found(f"created_after={created}") in ([], [second.id])  # the answer is rounded to milliseconds


def test_cancel_of_a_sweep_that_ends_otherwise_is_audited(make_run: Make, api: Api) -> None:
    run = make_run()
    run.step()
    api.data(api.post(f"/v1/sweeps/{run.id}/stop"))

    for _ in range(2):  # the second one changes nothing
        api.data(api.post(f"/v1/sweeps/{run.id}/cancel", {"reason": "enough"}))

    lines = api.get(f"/v1/audit?target={run.id}&action=sweep.cancel")["entries"]
    assert [(line["message"], line["project"]) for line in lines] == [("cancelled: enough", "default")]
