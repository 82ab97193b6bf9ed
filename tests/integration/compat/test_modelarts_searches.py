"""Training jobs with policies.auto_search over HTTP: sweeps, beside other training jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.security.permissions import Role
from app.storage.log_writer import LogWriter
from tests.builders.log_blocks import block
from tests.builders.sweep_runs import STEPS, SweepRun
from tests.integration.compat.test_modelarts import ALGORITHM, BASE, BODY, JOBS, created, refused, said
from tests.systems.apps import Api
from tests.unit.compat.test_modelarts_searches import AUTO, RATE, REWARD, SIZE

GRID = {
    "reward_attrs": [REWARD],
    "search_params": [{**RATE, "discrete_points_num": "2"}, {**SIZE, "discrete_values": ["16", "32"]}],
}
HEADER = ["done", "pid", "best_reward", "time_total_s", "config", "accuracy", "trial_id", "training_iteration"]


def searched(api: Api, name: str = "minist", auto: Any = GRID, **changes: Any) -> str:
    algorithm = {**ALGORITHM, "policies": {"auto_search": auto}}
    return created(api, name, algorithm=algorithm, **changes)


@contextmanager
def run_of(api: Api, job_id: str) -> Iterator[SweepRun]:
    run = SweepRun(api, existing=f"sweep-{job_id}")
    yield run
    run.close()


def train(run: SweepRun, number: int) -> None:
    run.train(
        number, to=STEPS, curve=lambda values, _step: float(values["lr"] + values["batch_size"]), metric="accuracy"
    )


def trials(api: Api, job_id: str, query: str = "") -> Any:
    return said(api.call("GET", f"{JOBS}/{job_id}/autosearch-trials{query}"))


def rows(api: Api, job_id: str) -> list[dict[str, str]]:
    items = trials(api, job_id)["items"]
    return [dict(zip(items["header"], row, strict=True)) for row in items["data"]]


def names_of(found: Any) -> list[str]:
    return [each["metadata"]["name"] for each in found["items"]]


@pytest.mark.both_databases
def test_training_job_with_a_search_is_a_sweep_of_the_native_api(api: Api) -> None:
    algorithm = {**ALGORITHM, "policies": {"auto_search": AUTO}}
    answer = api.post(JOBS, {**BODY, "algorithm": algorithm})
    made = said(answer, 201)
    job_id = made["metadata"]["id"]

    read = said(api.call("GET", f"{JOBS}/{job_id}"))
    native = api.get(f"/v1/sweeps/sweep-{job_id}")
    assert made == read
    assert (read["status"]["phase"], read["status"]["start_time"]) == ("Creating", 0)
    assert (read["metadata"]["name"], read["metadata"]["description"]) == ("minist", "digits")
    assert read["algorithm"]["policies"] == algorithm["policies"]
    assert read["algorithm"]["parameters"] == ALGORITHM["parameters"]
    assert native["document"]["method"]["name"] == "tpe"
    assert native["document"]["job"]["training_config"]["framework"]["custom_arguments"] == [
        "--lr=$(sweep.lr)",
        "--batch_size=$(sweep.batch_size)",
    ]
    refused(api.post(JOBS, BODY), 400, 2751)
    refused(api.post(JOBS, {**BODY, "algorithm": algorithm}), 400, 2751)
    assert said(api.call("GET", f"{BASE}/training-job-names?job_name=minist")) == {"is_duplicate": True}


def test_trials_are_rows_of_a_table(api: Api) -> None:
    job_id = searched(api)
    assert trials(api, job_id)["items"]["data"] == []
    with run_of(api, job_id) as run:
        for number in range(4):
            run.step()
            running = said(api.call("GET", f"{JOBS}/{job_id}"))
            train(run, number)
            run.end(number)
        run.step()
        run.step()
        ids = [str(trial.job_id).removeprefix("job-") for trial in run.trials()]

    found, ended = rows(api, job_id), said(api.call("GET", f"{JOBS}/{job_id}"))
    assert running["status"]["phase"] == "Running"
    assert ended["status"]["phase"] == ended["status"]["secondary_phase"] == "Completed"
    assert ended["status"]["start_time"] >= ended["metadata"]["create_time"]
    assert trials(api, job_id)["items"]["header"] == [*HEADER, "reward_attr"]
    assert [each["trial_id"] for each in found] == ids
    assert [each["config"] for each in found[:2]] == [
        '{"batch_size": 16, "lr": 0.001}',
        '{"batch_size": 16, "lr": 0.1}',
    ]
    assert (found[0]["done"], found[0]["best_reward"], found[0]["accuracy"]) == ("True", "16.001", "16.001")
    assert (found[0]["training_iteration"], found[0]["reward_attr"]) == (str(STEPS), found[0]["best_reward"])
    page = trials(api, job_id, "?limit=3&offset=1")
    assert (page["total"], page["count"], page["items"]["data"][0][6]) == (4, 1, ids[3])
    for name in (ids[2], "2"):
        one = said(api.call("GET", f"{JOBS}/{job_id}/autosearch-trials/{name}"))
        assert (one["header"], one["data"][0][6]) == ([*HEADER, "reward_attr"], ids[2])
    for name in ("9", "none", job_id):
        refused(api.call("GET", f"{JOBS}/{job_id}/autosearch-trials/{name}"), 400, 2775)
    refused(api.post(f"{JOBS}/{job_id}/actions", {"action_type": "terminate"}), 409, 2796)


def test_trial_is_stopped_early(api: Api) -> None:
    job_id = searched(api)
    with run_of(api, job_id) as run:
        run.step()
        train(run, 0)
        answer = said(api.post(f"{JOBS}/{job_id}/autosearch-trial-earlystop/0"))
        requested = run.job(0).requested
        run.end(0, JobState.CANCELLED)
        run.step()
        states = run.states()

    assert answer == {"earlystop_trial": rows(api, job_id)[0]["trial_id"]}
    assert (requested, states[0]) == ("cancel", "STOPPED")
    assert rows(api, job_id)[0]["best_reward"] == "16.001"


@pytest.mark.both_databases
def test_lists_have_searches_beside_jobs_and_no_trials(api: Api) -> None:
    created(api, "first")
    job_id = searched(api)
    with run_of(api, job_id) as run:
        run.step()
    created(api, "last")

    def search(**body: Any) -> Any:
        return said(api.post(f"{BASE}/training-job-searches", body))

    everything = search()
    assert (everything["total"], everything["count"]) == (3, 3)
    assert names_of(everything) == ["last", "minist", "first"]
    assert names_of(search(order="asc", limit=2)) == ["first", "minist"]
    running = {"key": "phase", "operator": "in", "value": ["Running"]}
    assert names_of(search(filters=[running])) == ["minist"]
    assert names_of(search(filters=[{"key": "name", "operator": "like", "value": ["min"]}])) == ["minist"]


def test_terminating_and_deleting_cancel_it(api: Api) -> None:
    job_id = searched(api)
    with run_of(api, job_id) as run:
        run.step()
        train(run, 0)
        stopped = said(api.post(f"{JOBS}/{job_id}/actions", {"action_type": "terminate"}), 202)
        run.carry_out(0)
        run.step()
    ended = said(api.call("GET", f"{JOBS}/{job_id}"))
    said(api.call("DELETE", f"{JOBS}/{job_id}"), 202)

    assert stopped["status"]["phase"] == "Terminating"
    assert ended["status"]["phase"] == "Terminated"
    refused(api.call("GET", f"{JOBS}/{job_id}"), 400, 2775)
    refused(api.call("GET", f"{JOBS}/{job_id}/autosearch-trials"), 400, 2775)
    assert said(api.post(f"{BASE}/training-job-searches", {}))["total"] == 0
    again = searched(api)
    said(api.post(f"{JOBS}/batch-delete", {"jobs": [{"metadata": {"id": again}}]}))
    assert api.get(f"/v1/sweeps/sweep-{again}")["status"] in ("FINISHING", "CANCELLED")


def test_description_and_tags_change(api: Api) -> None:
    job_id = searched(api)
    tags = f"{BASE}/modelarts-training-job/{job_id}/tags"

    said(api.call("PUT", f"{JOBS}/{job_id}", json={"description": "better"}))
    tagged = said(api.post(f"{tags}/create", {"tags": [{"key": "team", "value": "a"}]}))

    assert said(api.call("GET", f"{JOBS}/{job_id}"))["metadata"]["description"] == "better"
    assert tagged == said(api.call("GET", tags)) == {"tags": [{"key": "team", "value": "a"}]}
    wanted = {"tags": [{"key": "team", "values": ["a"]}]}
    found = said(api.post(f"{BASE}/modelarts-training-job/resource-instances/filter", wanted))
    assert [each["resource_id"] for each in found["resources"]] == [job_id]


def test_logs_are_those_of_its_best_or_newest_trial(api: Api) -> None:
    job_id = searched(api)
    preview = f"{JOBS}/{job_id}/tasks/worker-0/logs/preview"
    early = refused(api.call("GET", preview), 400, 2775)
    with run_of(api, job_id) as run:
        run.step()
        writer = LogWriter(run.plane.storage, str(run.trials()[0].job_id), 1)
        writer.append([block(1, "accuracy=1")])
        log = said(api.call("GET", preview))
        events = said(api.call("GET", f"{JOBS}/{job_id}/events"))

    assert "no trial yet" in early["error_msg"]
    assert "accuracy=1" in log["content"]
    assert "trial 0: batch_size=16, lr=0.001" in [each["message"] for each in events["events"]]


@pytest.mark.long
def test_parameters_are_analysed_when_enough_trials_have_completed(api: Api) -> None:
    pytest.importorskip("optuna")
    job_id = searched(api, auto={**AUTO, "algo_configs": [{"name": "anneal_search", "params": []}]})
    early = api.call("GET", f"{JOBS}/{job_id}/autosearch-parameter-analysis")
    with run_of(api, job_id) as run:
        for number in range(10):
            run.step()
            train(run, number)
            run.end(number)
        run.step()

    found = said(api.call("GET", f"{JOBS}/{job_id}/autosearch-parameter-analysis"))
    refused(early, 409, 2796)
    assert found["header"] == ["parameter_name", "importance"]
    assert found["data"][0][0] == "batch_size"
    assert sum(float(row[1]) for row in found["data"]) == pytest.approx(1)
    picture = said(api.call("GET", f"{JOBS}/{job_id}/autosearch-parameter-analysis/lr"))["file_path"]
    assert picture == f"/v1/sweeps/sweep-{job_id}/figures/slice?parameters=lr"
    assert api.call("GET", picture, headers={"Accept": "image/svg+xml"}).mimetype == "image/svg+xml"
    refused(api.call("GET", f"{JOBS}/{job_id}/autosearch-parameter-analysis/odd"), 400, 2775)


def test_algorithms_and_templates_are_listed(api: Api) -> None:
    algorithms = said(api.call("GET", f"{BASE}/search-algorithms"))
    listed = said(api.call("GET", f"{JOBS}/autosearch/yaml-templates"))["yaml_templates"][0]
    name = listed["algorithm_names"][1]
    template = said(api.call("GET", f"{JOBS}/autosearch/yaml-templates/{listed['algorithm_type_en']}/{name}"))

    assert algorithms["search_algo_count"] == len(algorithms["search_algo_list"]) == 3
    assert (name, template["file_name"]) == ("tpe_search", "tpe_search.yaml")
    assert "num_samples" in template["content"]
    refused(api.call("GET", f"{JOBS}/autosearch/yaml-templates/x/y"), 400, 2775)


@pytest.mark.parametrize(
    ("auto", "number", "words"),
    [
        (
            {**AUTO, "reward_attrs": [{**REWARD, "regex": "accuracy"}]},
            2788,
            "auto_search.reward_attrs.regex: the pattern has 0",
        ),
        ({**AUTO, "search_params": [{**RATE, "name": "password"}]}, 2788, "auto_search.search_params.password"),
        (
            {**AUTO, "algo_configs": [{"name": "tpe_search", "params": [{"key": "num_samples", "value": "0"}]}]},
            2788,
            "algo_configs.params.num_samples",
        ),
        ({**AUTO, "search_params": [{"name": "lr"}]}, 2788, "search_params.0.param_type"),
    ],
)
def test_bad_searches_are_refused_with_their_field(sqlite_api: Api, auto: Any, number: int, words: str) -> None:
    answer = sqlite_api.post(JOBS, {**BODY, "algorithm": {**ALGORITHM, "policies": {"auto_search": auto}}})

    assert words in refused(answer, 400, number)["error_msg"]
    assert sqlite_api.get("/v1/sweeps")["sweeps"] == []


def test_warnings_are_in_the_words_of_the_request(api: Api) -> None:
    params = [{"key": "gamma", "value": "0.3"}, {"key": "num_samples", "value": "3"}]
    body = {**BODY, "metadata": {"name": "x", "annotations": {"tensorboard/enable": "true"}}}
    auto = {**AUTO, "algo_configs": [{"name": "tpe_search", "params": params}]}
    answer = api.post(JOBS, {**body, "algorithm": {**ALGORITHM, "policies": {"auto_search": auto}}})

    said(answer, 201)
    warned = answer.headers.getlist("Warning")
    assert any("algo_configs.0.params.0.key: gamma has no effect" in line for line in warned)
    assert any("metadata.annotations.tensorboard/enable: a search has none" in line for line in warned)


def test_searches_of_other_projects_are_not_there(api: Api) -> None:
    job_id = searched(api)
    key = api.make_key(Role.USER, "other")

    refused(api.call("GET", f"/v2/other/training-jobs/{job_id}", key=key), 400, 2775)
    assert said(api.post("/v2/other/training-job-searches", {}, key=key))["total"] == 0


def test_a_job_without_a_search_has_no_trials(api: Api) -> None:
    job_id = created(api)

    refused(api.call("GET", f"{JOBS}/{job_id}/autosearch-trials"), 400, 2775)
    assert api.get(f"/v1/jobs/job-{job_id}")["sweep_id"] is None
