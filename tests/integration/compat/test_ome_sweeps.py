"""TrainingJobs with hyperParameterTuningConfig over HTTP: sweeps, beside the jobs of other TrainingJobs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import yaml

from app.domain.lifecycle.states import JobState
from app.domain.sweeps.states import TrialState
from app.models import Job, Trial
from app.security.permissions import Role
from tests.builders.sweep_runs import STEPS, SweepRun
from tests.integration.compat.test_ome import CORE, JOBS, LONGER_AGO, TABLE, created, manifest, patch, refused, said
from tests.integration.compat.test_ome_models import MULTI_NODE
from tests.integration.compat.test_ome_watches import shortly, watched, watched_names
from tests.systems.apps import Api
from tests.unit.compat.test_ome import LLAMA, TUNING
from tests.unit.compat.test_ome_searches import SECTION

LR, SIZE = "environment.learning_rate", "environment.batch_size"
TRAINER = {"command": ["python", "train.py"], "args": ["--learning_rate", "0.1"]}
GRID = {
    "method": "grid",
    "metric": {"name": "accuracy", "goal": "maximize"},
    "parameters": {
        "learning_rate": {"type": "double", "values": [0.1, 0.2]},
        "batch_size": {"type": "int", "min": 8, "max": 16, "step": 8},
    },
}


def tuned(api: Api, name: str = "words", config: Any = GRID, **spec: Any) -> Any:
    return created(api, name, **{"trainer": TRAINER, "hyperParameterTuningConfig": config, **spec})


def accuracy(values: Any, _step: int) -> float:
    return float(values[LR] + values[SIZE] / 100)


def train(run: SweepRun, *numbers: int) -> None:
    for number in numbers:
        run.train(number, to=STEPS, curve=accuracy, metric="accuracy")


@contextmanager
def run_of(api: Api, made: Any) -> Iterator[SweepRun]:
    """The sweep of a TrainingJob."""
    run = SweepRun(api, existing=f"sweep-{made['metadata']['uid']}")
    yield run
    run.close()


def holding(found: Any) -> list[str]:
    return [each["type"] for each in found["status"]["conditions"] if each["status"] == "True"]


@pytest.mark.both_databases
def test_training_job_with_a_search_is_a_sweep_of_the_native_api(api: Api) -> None:
    made = tuned(api)
    read = said(api.call("GET", f"{JOBS}/words"))

    native = api.get(f"/v1/sweeps/sweep-{made['metadata']['uid']}")
    framework = native["document"]["job"]["training_config"]["framework"]
    assert made == read == said(api.call("GET", f"{JOBS}/words/status"))
    assert framework["custom_command"] == ["python", "train.py", "--learning_rate=$(learning_rate)"]
    assert (native["name"], native["labels"], native["document"]["method"]["name"]) == (
        "words",
        {"team": "nlp"},
        "grid",
    )
    assert made["spec"]["hyperParameterTuningConfig"] == GRID
    assert (holding(made), made["status"]["trials"], made["spec"]["suspend"]) == (["Created"], [], False)
    refused(api.post(JOBS, manifest()), 409, "AlreadyExists")
    created(api, "plain")
    refused(api.post(JOBS, manifest("plain", hyperParameterTuningConfig=GRID)), 409, "AlreadyExists")


@pytest.mark.long
def test_trials_and_the_best_of_them_are_shown(api: Api) -> None:
    with run_of(api, tuned(api)) as run:
        run.step()
        train(run, 0)
        began = said(api.call("GET", f"{JOBS}/words"))
        for _ in range(3):
            waiting = len(run.trials()) - 1
            train(run, waiting)
            run.end(waiting)
            run.step()
        train(run, 3)
        run.end(3)
        run.step()
        run.step()

    ended = said(api.call("GET", f"{JOBS}/words"))
    assert began["status"]["trials"][0] == {
        "name": "words-trial-0",
        "values": {"learning_rate": 0.1, "batch_size": 8},
        "state": "Running",
    }
    assert began["status"]["jobsStatus"][0]["ready"] == 1
    assert holding(began) == ["Created", "Running"]
    assert holding(ended) == ["Created", "Succeeded", "Complete"]
    best = {"name": "words-trial-3", "values": {"learning_rate": 0.2, "batch_size": 16}, "value": pytest.approx(0.36)}
    assert ended["status"]["currentOptimalTrial"] == best
    assert ended["status"]["trials"][3] == {**best, "state": "Succeeded"}
    assert ended["status"]["trialCounts"] == {"Succeeded": 4}
    assert "4 Succeeded; best words-trial-3: accuracy 0.36" in ended["status"]["conditions"][-1]["message"]
    assert ended["status"]["completionTime"]
    table = said(api.call("GET", JOBS, headers=TABLE))
    assert table["rows"][0]["cells"][:2] == ["words", "Complete"]
    problem = refused(patch(api, f"{JOBS}/words", "merge-patch+json", {"spec": {"suspend": True}}), 400, "BadRequest")
    assert "has ended as COMPLETED" in problem["message"]


def test_failed_trials_fail_it(api: Api) -> None:
    with run_of(api, tuned(api)) as run:
        for number in range(4):
            run.step()
            run.end(number, JobState.FAILED, error_type="SCRIPT_ERROR", error_message="exit code 1")
        run.step()
        run.step()

    found = said(api.call("GET", f"{JOBS}/words"))
    assert found["status"]["conditions"][-1]["type"] == "Failed"
    assert found["status"]["trials"][0]["message"] == "SCRIPT_ERROR: exit code 1"
    assert found["status"]["jobsStatus"][0]["failed"] == 4


def test_a_replaced_member_of_a_population_counts_as_stopped_early(api: Api) -> None:
    with run_of(api, tuned(api)) as run:
        run.step()
        run.end(0, JobState.CANCELLED)
        with run.db.write() as session:
            session.get_one(Trial, (run.id, 0)).state = TrialState.EXPLOITED

    found = said(api.call("GET", f"{JOBS}/words"))
    assert found["status"]["trials"][0]["state"] == "EarlyStopped"
    assert found["status"]["jobsStatus"][0]["succeeded"] == 1


@pytest.mark.both_databases
def test_lists_have_jobs_and_sweeps_in_their_order_and_no_trials(api: Api) -> None:
    created(api, "first")
    with run_of(api, tuned(api)) as run:
        run.step()
        run.step()
    created(api, "last")

    names = [each["metadata"]["name"] for each in said(api.call("GET", JOBS))["items"]]
    paged, more = [], ""
    for _ in names:
        page = said(api.call("GET", f"{JOBS}?limit=1{more}"))
        paged += [each["metadata"]["name"] for each in page["items"]]
        more = f"&continue={page['metadata'].get('continue', 'none')}"
    labelled = said(api.call("GET", f"{JOBS}?fieldSelector=metadata.name%3Dwords"))["items"]
    assert names == paged == ["first", "words", "last"]
    assert [each["metadata"]["name"] for each in labelled] == ["words"]


def test_pods_of_all_trials_have_its_label(api: Api) -> None:
    with run_of(api, tuned(api, labels={"a": "b"})) as run:
        run.step()
        run.end(0)
        run.step()

        pods = said(api.call("GET", f"{CORE}/pods?labelSelector=job-name%3Dwords"))["items"]
        first = said(api.call("GET", f"{CORE}/pods?labelSelector=job-name%3Dwords&limit=1"))
        after = said(
            api.call("GET", f"{CORE}/pods?labelSelector=job-name%3Dwords&continue={first['metadata']['continue']}")
        )
        one = said(api.call("GET", f"{CORE}/pods/words-trial-1-0"))
        log = api.call("GET", f"{CORE}/pods/words-trial-1-0/log")

    assert [each["metadata"]["name"] for each in pods] == ["words-trial-0-0", "words-trial-1-0"]
    assert [each["metadata"]["name"] for each in first["items"] + after["items"]] == [
        each["metadata"]["name"] for each in pods
    ]
    assert one["metadata"]["labels"] == {
        "a": "b",
        "job-name": "words",
        "training.ome.io/trial": "1",
        "training.ome.io/rank": "0",
    }
    assert log.status_code == 200
    for missing in ("words-trial-9-0", "words-0", "words-trial-x-0", "other-trial-0-0"):
        refused(api.call("GET", f"{CORE}/pods/{missing}"), 404, "NotFound")


def test_weights_of_a_trial_name_their_training_job(api: Api) -> None:
    with run_of(api, tuned(api, modelConfig={"inputModel": "tiny"})) as run:
        run.step()
        run.end(0, report={"model_uri": "/srv/out"})

    named = said(api.call("GET", f"{JOBS.removesuffix('trainingjobs')}finetunedweights/words-trial-0"))
    assert named["spec"]["trainingJobRef"] == {"name": "words", "namespace": "default"}
    assert named["spec"]["baseModelRef"] == {"name": "tiny"}
    refused(api.call("GET", f"{JOBS.removesuffix('trainingjobs')}finetunedweights/words-trial-1"), 404, "NotFound")


def test_events_tell_of_trials(api: Api) -> None:
    with run_of(api, tuned(api)) as run:
        run.step()

    events = said(api.call("GET", f"{CORE}/events?fieldSelector=involvedObject.name%3Dwords"))["items"]
    of_trial = said(api.call("GET", f"{CORE}/events?fieldSelector=involvedObject.name%3Dwords-trial-0"))["items"]
    assert "trial 0: batch_size=8, learning_rate=0.1" in events[-1]["message"]
    assert events[0]["involvedObject"]["kind"] == "TrainingJob"
    assert of_trial[0]["involvedObject"]["kind"] == "Job"


def test_suspending_pauses_its_trials(api: Api) -> None:
    with run_of(api, tuned(api)) as run:
        run.step()
        run.step()
        stopped = said(patch(api, f"{JOBS}/words", "merge-patch+json", {"spec": {"suspend": True}}))
        paused = run.job(0).status
        resumed = said(patch(api, f"{JOBS}/words", "merge-patch+json", {"spec": {"suspend": False}}))
        goes = run.job(0).status
    later = tuned(api, "later", suspend=True)
    with run_of(api, later) as run:
        run.step()
        waits = run.trials()
        said(patch(api, f"{JOBS}/later", "merge-patch+json", {"spec": {"suspend": False}}))
        run.step()
        begun = run.states()

    assert (holding(stopped)[-1], stopped["spec"]["suspend"], paused) == ("Suspended", True, "PAUSED")
    assert stopped["status"]["trials"][0]["state"] == "Suspended"
    assert (holding(resumed)[-1], resumed["spec"]["suspend"], goes) == ("Running", False, "QUEUED")
    assert (later["spec"]["suspend"], holding(later)[-1], waits, begun[0]) == (True, "Suspended", [], "RUNNING")


def test_labels_and_annotations_change_and_nothing_else(api: Api) -> None:
    made = tuned(api)

    labelled = said(patch(api, f"{JOBS}/words", "merge-patch+json", {"metadata": {"labels": {"stage": "dev"}}}))
    again = patch(api, f"{JOBS}/words", "apply-patch+yaml", manifest(trainer=TRAINER, hyperParameterTuningConfig=GRID))
    more = {"spec": {"hyperParameterTuningConfig": {"maxTrials": 9}}}
    problem = refused(patch(api, f"{JOBS}/words", "merge-patch+json", more), 400, "BadRequest")

    assert labelled["metadata"]["labels"] == {"team": "nlp", "stage": "dev"}
    assert labelled["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    assert said(again)["metadata"]["uid"] == made["metadata"]["uid"]
    assert problem["details"]["causes"][0]["field"] == "spec.hyperParameterTuningConfig"
    refused(api.call("PUT", f"{JOBS}/words", json=made), 409, "Conflict")


@pytest.mark.both_databases
def test_deleting_cancels_it_and_frees_its_name(api: Api) -> None:
    uid = tuned(api)["metadata"]["uid"]
    with run_of(api, {"metadata": {"uid": uid}}) as run:
        run.step()
        deleted = said(api.call("DELETE", f"{JOBS}/words"))
        job = run.job(0)
        run.carry_out(0)
        run.step()
        ended = run.sweep().status

    assert deleted["details"]["uid"] == uid
    assert "cancel" in (job.requested or "") or job.status == "CANCELLED"
    assert ended == "CANCELLED"
    refused(api.call("GET", f"{JOBS}/words"), 404, "NotFound")
    refused(api.call("GET", f"{CORE}/pods/words-trial-0-0"), 404, "NotFound")
    assert said(api.call("GET", JOBS))["items"] == said(api.call("GET", f"{CORE}/pods"))["items"] == []
    assert api.get(f"/v1/sweeps/sweep-{uid}")["status"] == "CANCELLED"
    assert tuned(api)["metadata"]["uid"] != uid


def test_dry_run_writes_nothing(api: Api) -> None:
    found = said(api.post(f"{JOBS}?dryRun=All", manifest(hyperParameterTuningConfig=GRID, trainer=TRAINER)), 201)

    assert found["spec"]["hyperParameterTuningConfig"]["method"] == "grid"
    assert api.get("/v1/sweeps")["sweeps"] == []
    tuned(api)
    said(api.call("DELETE", f"{JOBS}/words?dryRun=All"))
    assert said(api.call("GET", f"{JOBS}/words"))["status"]["trials"] == []


def _ends_its_first(run: SweepRun) -> None:
    run.end(0)
    run.step()


@pytest.mark.long
def test_watch_reports_a_sweep_that_makes_trials_and_goes(api: Api) -> None:
    created(api, "first")
    made = tuned(api)
    with run_of(api, made) as run:
        run.step()
        time.sleep(LONGER_AGO)
        version = said(api.call("GET", JOBS))["metadata"]["resourceVersion"]
        with shortly(
            partial(_ends_its_first, run), lambda: tuned(api, "other"), lambda: api.call("DELETE", f"{JOBS}/words")
        ):
            changes = watched(api, JOBS, f"resourceVersion={version}", seconds=5)
            pods = watched_names(api, f"{CORE}/pods", f"resourceVersion={version}")

    reported = [(each["type"], each["object"]["metadata"]["name"]) for each in changes]
    assert reported[0] == ("MODIFIED", "words")
    assert max(len(each["object"]["status"].get("trials", [])) for each in changes) == 2
    assert ("ADDED", "other") in reported
    assert reported[-1] == ("DELETED", "words")
    assert all(name in ("words", "other") for _, name in reported)
    assert ("DELETED", "words-trial-1-0") in pods


def test_examples_of_the_documentation_make_sweeps(api: Api) -> None:
    first = said(api.post(JOBS, manifest("llama") | {"spec": {**LLAMA, "hyperParameterTuningConfig": TUNING}}), 201)
    last = api.post(JOBS, yaml.safe_load(MULTI_NODE))
    section = tuned(api, "section", SECTION)

    found = said(last, 201)
    assert first["spec"]["hyperParameterTuningConfig"] == TUNING
    assert section["spec"]["hyperParameterTuningConfig"] == SECTION
    native = api.get(f"/v1/sweeps/sweep-{found['metadata']['uid']}")["document"]
    assert (native["job"]["resource_config"]["node_count"], native["budget"]["max_trials"]) == (8, 50)
    assert native["job"]["training_config"]["framework"]["type"] == "HF_TRAINER"
    warned = "".join(last.headers.getlist("Warning"))
    assert "parameters: none is named: learning_rate varies" in warned
    assert "job." not in warned


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"config": {**GRID, "maxTrials": 0}}, "hyperParameterTuningConfig.maxTrials"),
        ({"config": {**GRID, "maxTrials": 20_000}}, "hyperParameterTuningConfig.maxTrials"),
        ({"config": {**GRID, "parameters": {}}}, "hyperParameterTuningConfig.parameters"),
        ({"config": {**GRID, "method": "tpe"}}, "hyperParameterTuningConfig.method"),
        ({"config": {**GRID, "parameters": {"a b": 1}}}, None),
        ({"config": {**GRID, "parameters": {"x": {"type": "int", "values": [1, 1]}}}}, "parameters.x.values"),
        ({"config": {**GRID, "parameters": {"password": {"type": "int", "values": [1]}}}}, "parameters.password"),
        ({"trainer": {}, "modelConfig": {"inputModel": "m"}, "datasets": {"storageUri": "/srv/d"}}, "metric.name"),
        ({"trainer": {**TRAINER, "numProcPerNode": "9"}, "config": {**GRID, "metric": {}}}, "metric.name"),
    ],
)
def test_bad_searches_are_refused_with_the_field_of_the_manifest(
    sqlite_api: Api, spec: dict[str, Any], field: str | None
) -> None:
    config = spec.pop("config", {**GRID, "metric": {"name": "colour", "goal": "maximize"}})
    body = manifest(**{"trainer": TRAINER, "hyperParameterTuningConfig": config, **spec})
    answer = sqlite_api.post(JOBS, body)

    if field is None:
        assert answer.status_code == 201
        return
    causes = said(answer, 422 if answer.status_code == 422 else 400)["details"]["causes"]
    assert causes[0]["field"].endswith(field), causes
    assert sqlite_api.get("/v1/sweeps")["sweeps"] == []


def test_jobs_that_are_no_trials_any_more_are_training_jobs_of_their_own(api: Api) -> None:
    with run_of(api, tuned(api, labels={"a": "b"})) as run:
        run.step()
        run.end(0, JobState.FAILED, error_type="SCRIPT_ERROR", error_message="exit code 1")
        again = str(api.data(api.post(f"/v1/jobs/{run.trials()[0].job_id}/retry"), 201)["job_id"])
        said(api.call("DELETE", f"{JOBS}/words"))
        run.step()
        assert api.call("DELETE", f"/v1/sweeps/{run.id}").status_code == 204

    retry = said(api.call("GET", f"{JOBS}/{again}"))
    table = said(api.call("GET", JOBS, headers=TABLE))
    assert retry["spec"]["trainer"]["command"][:2] == ["python", "train.py"]
    assert [row["cells"][0] for row in table["rows"]] == [again]


def test_sweeps_of_other_projects_are_not_there(api: Api) -> None:
    tuned(api)
    key = api.make_key(Role.USER, "other")

    refused(api.call("GET", f"{JOBS}/words", key=key), 404, "NotFound")
    mine = said(api.call("GET", "/apis/ome.io/v1beta1/trainingjobs", key=key))
    assert mine["items"] == []


def test_variables_of_secrets_stay_secret(api: Api) -> None:
    variable = {"name": "MY_WORD", "value": "s3"} | {"name": "API_KEY", "value": "s3"}
    made = tuned(api, trainer={**TRAINER, "env": [variable]})
    with run_of(api, made) as run:
        run.step()
        job = run.job(0)

    assert made["spec"]["trainer"]["env"][0]["value"] == "***"
    with api.db.read() as session:
        stored = session.get_one(Job, job.id)
        assert stored.spec["training_config"]["environment"]["API_KEY"] == "***"
    assert "s3" not in str(api.get(f"/v1/sweeps/{run.id}"))
