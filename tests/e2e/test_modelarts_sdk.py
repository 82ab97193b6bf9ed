"""ModelArts' training jobs by Huawei Cloud's own SDK, with real signatures, at a running system."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from huaweicloudsdkmodelarts.v1 import ModelArtsClient, model

from tests.systems.places import BUCKET, KEY, SECRET, running_s3
from tests.systems.system import System, wait_for

PROGRAM = """
import argparse, os, pathlib, time
parser = argparse.ArgumentParser()
for name in ("data_url", "train_url", "steps"):
    parser.add_argument(f"--{name}")
asked = parser.parse_args()
words = pathlib.Path("/home/ma-user", "data_url", "words.txt").read_text()
assert words == pathlib.Path(asked.data_url, "words.txt").read_text()
assert asked.data_url == "/home/ma-user/data_url", asked.data_url
pathlib.Path("/home/ma-user", "train_url", "model.txt").write_text(words.upper())
pathlib.Path(asked.train_url, "around.txt").write_text(" ".join(os.listdir()))
for step in range(int(asked.steps)):
    print("step", step, words, flush=True)
    time.sleep(0.2)
"""


@contextmanager
def client_of(system: System, *, wrong: str = "") -> Iterator[Any]:
    """The client with a pair of its own; `wrong` is what its secret key has at its end instead of what is right."""
    pair = system.call("POST", "/v1/keys", {"role": "user", "project": "default", "name": "clients"})[1]["data"]
    secret = pair["secret_key"][: len(pair["secret_key"]) - len(wrong)] + wrong
    credentials = BasicCredentials(pair["access_key"], secret, "default")
    endpoint = f"http://127.0.0.1:{system.port}"
    client = ModelArtsClient.new_builder().with_credentials(credentials).with_endpoint(endpoint).build()
    yield client
    client._http_client._executor.shutdown()


def job(
    name: str, steps: int, *, bucket: str = "team", working_dir: str | None = None, **more: Any
) -> model.CreateTrainingJobRequest:
    def channel(kind: Any, channel_name: str, place: str) -> Any:
        remote = model.Remote if kind is model.Output else model.InputDataInfo
        obs = model.RemoteObs if kind is model.Output else model.InputDataInfoObs
        return kind(name=channel_name, local_dir=f"/home/ma-user/{channel_name}", remote=remote(obs=obs(obs_url=place)))

    algorithm = model.JobAlgorithm(
        code_dir=f"/{bucket}/src/",
        boot_file=f"/{bucket}/src/train.py",
        parameters=[model.Parameters(name="steps", value=str(steps))],
        inputs=[channel(model.Input, "data_url", f"obs://{bucket}/words/")],
        outputs=[channel(model.Output, "train_url", f"/{bucket}/out/{name}/")],
        working_dir=working_dir,
    )
    resource = model.SpecResource(flavor_id="trainyard.cpu.1", node_count=1)
    metadata = model.JobMetadata(name=name, description="words", **more)
    body = model.Job(kind="job", metadata=metadata, algorithm=algorithm, spec=model.Spec(resource=resource))
    return model.CreateTrainingJobRequest(body=body)


def observed(client: Any, job_id: str) -> tuple[Any, ...]:
    """Log, a page of it, events, metrics and stages."""
    of_job, of_task = {"training_job_id": job_id}, {"training_job_id": job_id, "task_id": "worker-0"}
    return (
        client.show_training_job_logs_preview(model.ShowTrainingJobLogsPreviewRequest(**of_task)),
        client.show_training_job_logs_from_aom(model.ShowTrainingJobLogsFromAomRequest(**of_task, lines=2)),
        client.list_training_job_events(model.ListTrainingJobEventsRequest(**of_job)),
        client.show_training_job_metrics(model.ShowTrainingJobMetricsRequest(**of_task)),
        client.list_training_job_stages(model.ListTrainingJobStagesRequest(**of_job)),
    )


@pytest.mark.long
@pytest.mark.timeout(200)
def test_sdk_leads_a_training_job_through_its_life(shared_system: System) -> None:
    system = shared_system
    bucket = system.data_dir / "files/obs/team"  # where obs:// lies while no service is configured
    for folder, name, text in (("src", "train.py", PROGRAM), ("words", "words.txt", "one two")):
        (bucket / folder).mkdir(parents=True, exist_ok=True)
        (bucket / folder / name).write_text(text)
    with client_of(system) as client:

        def phase(job_id: str) -> str:
            found = client.show_training_job_details(model.ShowTrainingJobDetailsRequest(training_job_id=job_id))
            return str(found.status.phase)

        def until(job_id: str, wanted: str) -> None:
            wait_for(lambda: True if phase(job_id) == wanted else None, seconds=60, what=f"the phase {wanted}")

        short = client.create_training_job(job("sdk-short", 5, working_dir="/home/ma-user/modelarts/user-job-dir/src"))
        until(short.metadata.id, "Completed")
        shown = client.show_training_job_details(model.ShowTrainingJobDetailsRequest(training_job_id=short.metadata.id))
        endless = client.create_training_job(job("sdk-endless", 10_000)).metadata.id
        until(endless, "Running")
        found = client.list_training_jobs(
            model.ListTrainingJobsRequest(
                body=model.JobSearches(
                    offset=0,
                    limit=10,
                    filters=[
                        model.Filter(key="phase", operator="in", value=["Completed"]),
                        model.Filter(key="name", operator="like", value=["sdk-"]),
                    ],
                )
            )
        )
        log, page, events, metrics, stages = observed(client, short.metadata.id)
        stopped = client.stop_training_job(
            model.StopTrainingJobRequest(training_job_id=endless, body=model.JobActionType(action_type="terminate"))
        )
        until(endless, "Terminated")
        client.delete_training_job(model.DeleteTrainingJobRequest(training_job_id=endless))

        assert (shown.status.phase, shown.status.secondary_phase) == ("Completed", "Completed")
        assert shown.status.start_time > shown.metadata.create_time > 1_700_000_000_000
        assert 1000 <= shown.status.duration < 60_000
        assert [(each.task, each.exit_code) for each in shown.status.task_statuses] == [("worker-0", 0)]
        assert shown.metadata.user_name == "clients"
        assert [(each.start_type, each.end_at >= each.start_at) for each in shown.status.running_records] == [
            ("init_or_rescheduled", True)
        ]
        assert shown.spec.resource.flavor_detail.flavor_info.cpu.core_num >= 1
        assert shown.algorithm.inputs[0].remote.obs.obs_url == "obs://team/words/"
        assert (bucket / "out/sdk-short/model.txt").read_text() == "ONE TWO"
        assert (bucket / "out/sdk-short/around.txt").read_text() == "train.py"
        assert [each.metadata.name for each in found.items] == ["sdk-short"]
        assert log.content == "".join(f"step {step} one two\n" for step in range(5))
        assert page.content == "step 3 one two\nstep 4 one two\n"
        assert events.total > 3
        assert {each.level for each in events.events} <= {"Info", "Warning"}
        assert [each.metric for each in metrics.metrics][:2] == ["cpuUsage", "memUsage"]
        assert "training" in [stage.name for stage in stages.running_records[0].stages]
        assert stopped.status.phase == "Terminating"
        with pytest.raises(ClientRequestException) as gone:
            client.show_training_job_details(model.ShowTrainingJobDetailsRequest(training_job_id=endless))
        assert (gone.value.status_code, gone.value.error_code) == (400, "ModelArts.2775")


@pytest.mark.long
@pytest.mark.timeout(200)
def test_sdk_searches_for_hyperparameters(shared_system: System) -> None:
    bucket = shared_system.data_dir / "files/obs/team"
    (bucket / "search").mkdir(parents=True, exist_ok=True)
    # The first of the two runs until it is stopped.
    (bucket / "search/tell.py").write_text(
        "import sys, time\nprint(sys.argv[1:])\nprint('acc:', rate := sys.argv[1].split('=')[1], flush=True)\n"
        "time.sleep(600 if rate == '0.25' else 0)\n"
    )
    search = model.AutoSearch(
        skip_search_params="depth",
        reward_attrs=[model.RewardAttrs(name="acc", mode="max", regex=r"acc: ([\d.]+)")],
        search_params=[
            model.SearchParams(
                name="lr", param_type="continuous", lower_bound="0.25", upper_bound="0.75", discrete_points_num="2"
            ),
            model.SearchParams(name="depth", param_type="discrete", discrete_values=["1", "2"]),
        ],
        algo_configs=[],
    )
    algorithm = model.JobAlgorithm(
        code_dir="/team/search/",
        boot_file="/team/search/tell.py",
        parameters=[model.Parameters(name="lr", value="0"), model.Parameters(name="depth", value="3")],
        policies=model.JobPolicies(auto_search=search),
    )
    resource = model.SpecResource(flavor_id="trainyard.cpu.1")
    metadata = model.JobMetadata(name="sdk-search")
    body = model.Job(kind="job", metadata=metadata, algorithm=algorithm, spec=model.Spec(resource=resource))
    with client_of(shared_system) as client:
        made = client.create_training_job(model.CreateTrainingJobRequest(body=body)).metadata.id
        wanted = model.ShowTrainingJobDetailsRequest(training_job_id=made)
        listed = f"/v1/sweeps/sweep-{made}/trials"
        first = wait_for(lambda: shared_system.get(listed)["trials"], seconds=60, what="a trial")[0]["job_id"]
        values = f"/v1/jobs/{first}/metrics?names=acc"
        wait_for(lambda: shared_system.get(values)["series"].get("acc"), seconds=60, what="a value")
        stopped = client.show_auto_search_trial_early_stop(
            model.ShowAutoSearchTrialEarlyStopRequest(training_job_id=made, trial_id=first.removeprefix("job-"))
        )
        wait_for(
            lambda: client.show_training_job_details(wanted).status.phase == "Completed" or None,
            seconds=90,
            what="the search is done",
        )
        shown = client.show_training_job_details(wanted)
        trials = client.show_auto_search_trials(model.ShowAutoSearchTrialsRequest(training_job_id=made))
        rows = [dict(zip(trials.items.header, each, strict=True)) for each in trials.items.data]
        one = client.show_auto_search_per_trial(
            model.ShowAutoSearchPerTrialRequest(training_job_id=made, trial_id=rows[1]["trial_id"])
        )
        log = client.show_training_job_logs_preview(
            model.ShowTrainingJobLogsPreviewRequest(training_job_id=made, task_id="worker-0")
        )
        with pytest.raises(ClientRequestException) as too_few:
            client.show_auto_search_params_analysis(model.ShowAutoSearchParamsAnalysisRequest(training_job_id=made))
        picture = client.show_auto_search_param_analysis_result_path(
            model.ShowAutoSearchParamAnalysisResultPathRequest(training_job_id=made, parameter_name="lr")
        )
        algorithms = client.show_search_algorithms(model.ShowSearchAlgorithmsRequest())
        templates = client.show_auto_search_yaml_templates_info(model.ShowAutoSearchYamlTemplatesInfoRequest())
        client.delete_training_job(model.DeleteTrainingJobRequest(training_job_id=made))

    assert shown.algorithm.policies.auto_search.search_params[0].discrete_points_num == "2"
    assert (trials.total, [(each["best_reward"], each["config"]) for each in rows]) == (
        2,
        [("0.25", '{"lr": 0.25}'), ("0.75", '{"lr": 0.75}')],
    )
    assert stopped.earlystop_trial == rows[0]["trial_id"]
    assert one.data == trials.items.data[1:]
    assert (too_few.value.status_code, "10 completed trials" in too_few.value.error_msg) == (409, True)
    assert picture.file_path == f"/v1/sweeps/sweep-{made}/figures/slice?parameters=lr"
    assert log.content.splitlines() == ["['--lr=0.75', '--depth=3']", "acc: 0.75"]  # of the best one
    assert algorithms.search_algo_count == len(algorithms.search_algo_list) == 3
    assert "tpe_search" in templates.yaml_templates[0].algorithm_names


@pytest.mark.long
@pytest.mark.timeout(120)
def test_command_finds_its_code_by_the_words_of_its_own_machine_and_fails_as_itself(shared_system: System) -> None:
    code = f"file://{shared_system.inputs}"
    words = f"cd {shared_system.inputs} && ls count.py && exit 3"
    algorithm = model.JobAlgorithm(code_dir=code, command=words)
    resource = model.SpecResource(flavor_id="modelarts.vm.cpu.1u")
    body = model.Job(
        kind="job", metadata=model.JobMetadata(name="failing"), algorithm=algorithm, spec=model.Spec(resource=resource)
    )
    with client_of(shared_system) as client:
        made = client.create_training_job(model.CreateTrainingJobRequest(body=body)).metadata.id
        wanted = model.ShowTrainingJobDetailsRequest(training_job_id=made)
        wait_for(
            lambda: client.show_training_job_details(wanted).status.phase == "Failed" or None,
            seconds=60,
            what="the job has failed",
        )
        status = client.show_training_job_details(wanted).status
        log = client.show_training_job_logs_preview(
            model.ShowTrainingJobLogsPreviewRequest(training_job_id=made, task_id="worker-0")
        )

    assert shared_system.get("/v1/nodes")["nodes"][0]["sandbox"] == "bubblewrap"
    assert log.content == "count.py\n"
    assert [(each.task, each.exit_code) for each in status.task_statuses] == [("worker-0", 3)]
    assert [each.end_related_task for each in status.running_records] == ["worker-0"]
    assert abs(status.duration // 1000 - sum(each.end_at - each.start_at for each in status.running_records)) <= 1


@pytest.mark.long
@pytest.mark.timeout(200)
def test_code_data_and_results_lie_in_an_object_store(
    make_system: Callable[..., System], assets: dict[str, str]
) -> None:
    with running_s3(Path(assets["model"]).parent) as store:
        system = make_system(
            TRAINYARD_FETCH_ALLOW="127.0.0.1",
            TRAINYARD_FETCH_OBS_ENDPOINT=store.url,
            TRAINYARD_FETCH_OBS_KEY=KEY,
            TRAINYARD_FETCH_OBS_SECRET=SECRET,
        ).start("n1")
        for name, text in (("src/train.py", PROGRAM), ("words/words.txt", "one two")):
            store.client.put_object(Bucket=BUCKET, Key=name, Body=text.encode())
        with client_of(system) as client:
            made = client.create_training_job(job("stored", 1, bucket=BUCKET)).metadata.id
            shown = model.ShowTrainingJobDetailsRequest(training_job_id=made)
            wait_for(
                lambda: client.show_training_job_details(shown).status.phase == "Completed" or None,
                seconds=90,
                what="the job is done",
            )

        assert store.files("out/stored/")["model.txt"] == b"ONE TWO"


@pytest.mark.long
@pytest.mark.timeout(120)
def test_sdk_is_refused_without_the_secret_of_its_key(shared_system: System) -> None:
    with client_of(shared_system, wrong="x") as client, pytest.raises(ClientRequestException) as refused:
        client.show_training_job_flavors(model.ShowTrainingJobFlavorsRequest())

    assert (refused.value.status_code, refused.value.error_code) == (401, "ModelArts.2784")
