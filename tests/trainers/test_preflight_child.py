"""The child process of a coordinator that inspects one job: what it finds, fetches, limits and leaves out."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.database.engine import Database, make_engine
from app.domain.spec.model import JobDocument
from app.host import processes
from app.host.fork_servers import is_listening, supervisors_socket
from app.models import Job
from app.services.preflight import admission, inspections
from app.services.preflight.inspection_queue import InspectionQueue
from app.services.requests.storage_access import reading_rules
from config.settings import Settings, load_settings
from tests.builders.factories import make_document
from tests.builders.walks import make_job
from tests.doubles.hub import running_hub
from tests.fetching.web_server import WebServer, file
from tests.systems.system import wait_for
from workers.node.warm_starts import supervisor_server
from workers.prepare import preflight
from workers.prepare.preflight_process import PREFLIGHT, PreflightProcess
from workers.process_environment import settings_environment

ROOT = Path(__file__).parents[2]
# Has a preflight until its standard input ends.
COORDINATOR = """
import sys
from config.settings import load_settings
from workers.prepare.preflight_process import PreflightProcess
preflight = PreflightProcess(load_settings(), sys.argv[1].encode())
sys.stdin.read()
preflight.close()
"""


@pytest.fixture
def make_settings(tmp_path: Path, assets: Path, sqlite_url: str) -> Callable[..., Settings]:
    def make(**variables: str) -> Settings:
        data = tmp_path / "data"
        (data / "files").mkdir(parents=True, exist_ok=True)
        return load_settings(
            {
                "TRAINYARD_DATA_DIR": str(data),
                "TRAINYARD_DATABASE_URL": sqlite_url,
                "TRAINYARD_STORAGE_ROOTS": f"{assets}:{tmp_path}",
                "TRAINYARD_FETCH_ALLOW": "127.0.0.1",
                **variables,
            }
        )

    return make


@pytest.fixture
def db(sqlite_url: str) -> Iterator[Database]:
    bound = Database().bind(make_engine(sqlite_url))
    yield bound
    bound.close()


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


def question(assets: Path, *paths: str, **base_model: Any) -> dict[str, Any]:
    spec = make_document(
        training_config={"base_model": {"model_id": str(assets / "model"), **base_model}},
        data_config={"sources": [{"path": path} for path in paths], "max_seq_length": 64},
    )
    return {"project": "default", "job_id": "job-1", "spec": spec, "sealed_secrets": ""}


@pytest.mark.long
def test_a_process_answers_and_leaves_nothing_behind(make_settings, assets, tmp_path):
    settings = make_settings()
    command = [sys.executable, "-m", "workers.prepare.preflight", "--die-with", str(os.getpid())]
    environment = {**os.environ, **settings_environment(settings), "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}

    done = subprocess.run(
        command,
        input=json.dumps(question(assets, "chat.jsonl", "train.jsonl")),
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )

    report = json.loads(done.stdout)
    assert (report["errors"], report["left_out"]) == ([], [])
    assert [source["records_read"] for source in report["sources"]] == [60, 60]
    assert report["seconds"]["inspected"] > 0
    assert list((tmp_path / "data" / "run" / "preflight").iterdir()) == []


@pytest.fixture
def forks(tmp_path):
    """A data directory with a server that forks preflights."""
    server = supervisor_server(tmp_path / "data")
    with contextlib.closing(server):
        server.keep()
        path = supervisors_socket(tmp_path / "data")  # a child says nothing: imports run programs, too
        wait_for(lambda: is_listening(path), seconds=20, what="a server that takes requests")
        yield server


@pytest.mark.long
def test_forked_preflight_answers_what_a_program_does(make_settings, assets, forks):
    settings, outputs, codes = make_settings(), [], []
    asked = json.dumps(question(assets, "chat.jsonl", "missing.jsonl")).encode()
    for _ in ("forked", "as a program"):
        with contextlib.closing(PreflightProcess(settings, asked)) as process:
            outputs.append(process.read(60) or b"")
            codes.append(process.exit_code)
        forks.close()

    assert outputs[0] == outputs[1]
    assert "missing.jsonl" in json.loads(outputs[0])["errors"][0]["message"]
    assert codes == [None, 0]


@pytest.mark.long
@pytest.mark.parametrize("end", ["it is closed", "its coordinator is killed"])
@pytest.mark.usefixtures("forks")
def test_forked_preflight_ends_with_the_process_that_wanted_it(make_settings, assets, tmp_path, end):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = question(assets, f"http://127.0.0.1:{silent.getsockname()[1]}/never.jsonl")
        coordinator = subprocess.Popen(
            [sys.executable, "-c", COORDINATOR, json.dumps(asked)],
            env={**os.environ, **settings_environment(make_settings()), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
        )
        try:
            (pid,) = wait_for(lambda: preflights(tmp_path / "data"), seconds=20, what="a preflight")
            if end == "it is closed":
                coordinator.communicate()
            else:
                coordinator.kill()
            wait_for(lambda: not processes.state_of(pid), seconds=5, what="the end of the preflight")
            assert preflights(tmp_path / "data") == []
        finally:
            coordinator.kill()
            coordinator.communicate()


def preflights(data_dir: Path) -> list[int]:
    """The pids of those that run with this data directory."""
    shown = f"TRAINYARD_DATA_DIR={data_dir}\0".encode()
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if PREFLIGHT in (process.info["cmdline"] or ()) and shown in Path(f"/proc/{process.pid}/environ").read_bytes()
    ]


@pytest.mark.long
def test_fetched_data_is_looked_at_once_for_the_same_bytes(make_settings, db, assets, web):
    settings = make_settings()
    web.answers["/train.jsonl"] = file((assets / "train.jsonl").read_bytes())
    asked = question(assets, web.url("/train.jsonl"))
    job_id = make_job(db, document=asked["spec"])
    with db.write() as session:
        job = session.get_one(Job, job_id)
        inspections.request_for_job(session, job, "")
    line = InspectionQueue(db, "here:boot:1:1")
    work = inspections.claim(db, line.free([], 0.0)[0], line.me)
    assert work is not None

    first = preflight.inspect_inputs(settings, db, asked)
    admission.conclude(db, work, first)
    again = preflight.inspect_inputs(settings, db, asked)
    web.answers["/train.jsonl"] = file((assets / "chat.jsonl").read_bytes())
    changed = preflight.inspect_inputs(settings, db, asked)

    assert first["sources"][0]["records_read"] == 60
    assert len(first["fingerprint"]) == 64
    assert again["remembered"] is True
    assert "remembered" not in changed
    assert changed["sources"][0]["columns"] == ["messages"]


@pytest.mark.long
def test_records_of_an_evaluation_are_looked_at_without_its_model(make_settings, db, assets, tmp_path):
    (tmp_path / "metric.py").write_text("def score(records, completions):\n    raise SystemExit")
    benchmarks = [{"name": f"custom:{tmp_path}/metric.py", "dataset": 0}, {"name": "f1", "dataset": 0}]
    asked = question(assets, str(assets / "train.jsonl"))
    model = {"base_model": {"model_id": "none"}, "framework": {"type": "TRANSFORMERS"}, "hyperparameters": {}}
    asked["spec"] |= {"kind": "evaluation", "inference": {"model": {"job_id": "job-2"}, "benchmarks": benchmarks}}
    asked["spec"]["training_config"] = {"training_type": "EVALUATION", **model}

    report = preflight.inspect_inputs(make_settings(), db, asked)
    (tmp_path / "metric.py").unlink()
    without = preflight.inspect_inputs(make_settings(), db, asked)

    assert report["errors"][0]["error_type"] == "DATA_INVALID"
    assert "benchmark f1: record 0 (train.jsonl line 1): it has no column answer" in report["errors"][0]["message"]
    assert report["sources"][0]["records_read"] == 60
    assert without["errors"][0]["error_type"] == "INVALID_CONFIG"


def test_code_of_a_model_does_not_run_where_there_is_no_sandbox(make_settings, db, assets, no_bubblewrap):
    asked = question(assets, "train.jsonl", trust_remote_code=True)

    report = preflight.inspect_inputs(make_settings(), db, asked)
    demanded = preflight.inspect_inputs(
        make_settings(TRAINYARD_NODE_SANDBOX="bubblewrap"), db, question(assets, "train.jsonl")
    )

    assert "bubblewrap is not installed" in report["left_out"][0]
    assert demanded["left_out"] == report["left_out"]
    assert inspections.verdict_of(report) == inspections.LEFT, "it is not remembered: another coordinator may look"


def test_what_is_not_there_is_an_error_and_what_is_large_is_left_to_the_node(make_settings, db, assets, web):
    web.answers["/large.jsonl"] = file((assets / "train.jsonl").read_bytes())

    missing = preflight.inspect_inputs(make_settings(), db, question(assets, web.url("/gone.jsonl")))
    large = preflight.inspect_inputs(
        make_settings(TRAINYARD_PREFLIGHT_FETCH_BYTES="100"), db, question(assets, web.url("/large.jsonl"))
    )

    assert missing["errors"][0]["error_type"] == "DATA_NOT_FOUND"
    assert "gone.jsonl" in missing["errors"][0]["message"]
    assert "TRAINYARD_PREFLIGHT_FETCH_BYTES" in large["left_out"][0]
    assert "errors" not in large


@pytest.mark.long
def test_of_a_model_on_a_hub_no_weights_are_fetched(make_settings, db, assets, monkeypatch):
    weights = (assets / "model" / "model.safetensors").stat().st_size
    with running_hub() as hub:
        hub.add("acme/tiny", assets / "model")
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        settings = make_settings(TRAINYARD_PREFLIGHT_FETCH_BYTES=str(weights))

        report = preflight.inspect_inputs(settings, db, question(assets, "train.jsonl", model_id="acme/tiny"))

    assert (report["errors"], report["left_out"]) == ([], [])
    assert report["model"]["model_type"] == "llama"
    assert report["fingerprint"]


def test_places_this_machine_is_not_set_up_for_are_left_to_the_node(make_settings, db, assets):
    asked = question(assets, "ipfs://bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi")

    report = preflight.inspect_inputs(make_settings(), db, asked)
    without_job = preflight.inspect_inputs(make_settings(), db, {**asked, "job_id": None})

    assert "errors" not in report
    assert "ipfs" in report["left_out"][0]
    assert without_job["errors"][0]["error_type"] == "INVALID_CONFIG"


@pytest.mark.long
def test_registries_are_asked_for_images_of_scripts_beside_a_training_too(make_settings, db, assets, tmp_path):
    settings = make_settings(TRAINYARD_IMAGES_SOURCES="127.0.0.1:9", TRAINYARD_IMAGES_PLAIN_HTTP="127.0.0.1:9")
    asked = question(assets, "ipfs://bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi")
    judge = {"role": "judge", "resource_config": {"image": {"reference": "127.0.0.1:9/team/tool:v1"}}}
    asked["spec"]["tasks"] = [{"role": "trainer", "program": "train"}, judge]

    report = preflight.inspect_inputs(settings, db, asked)

    of_data, of_image = report["left_out"]
    assert "ipfs" in of_data
    assert of_image.startswith("tasks.1.resource_config.image.reference: 127.0.0.1:9/team/tool:v1 can't be fetched")


def test_training_beside_a_script_in_an_image_has_no_fingerprint(make_settings, assets):
    rules, looks = reading_rules(make_settings()), admission.InspectionSettings(rows=10, waiting=10)
    spec = question(assets, str(assets / "train.jsonl"))["spec"]
    judge = {"role": "judge", "resource_config": {"image": {"reference": "registry.example/team/tool:v1"}}}

    alone, beside = (
        admission.fingerprint_of("default", JobDocument.from_json({**spec, "tasks": tasks}), rules, looks)
        for tasks in ([], [judge])
    )

    assert (len(alone), beside) == (64, "")


def test_what_a_coordinator_apart_from_the_nodes_does_not_find_is_left_to_them(
    make_settings, db, assets, tmp_path, monkeypatch
):
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        asked = question(assets, "train.jsonl", model_id="models/tiny")
        roots = f"{assets}:{tmp_path / 'not-mounted'}"

        beside = preflight.inspect_inputs(make_settings(), db, asked)
        apart = preflight.inspect_inputs(make_settings(TRAINYARD_STORAGE_ROOTS=roots), db, asked)

    assert beside["errors"][0]["error_type"] == "MODEL_NOT_FOUND"
    assert "models/tiny" in apart["left_out"][0]
    assert "errors" not in apart


@pytest.mark.long
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TRAINYARD_PREFLIGHT_TIMEOUT_SECONDS", "0.1", "took longer than"),
        ("TRAINYARD_PREFLIGHT_MEMORY_MB", "64", "the preflight of model and data"),
    ],
)
def test_what_takes_too_much_is_left_to_the_node(make_settings, db, assets, variable, value, said):
    report = preflight.inspect_inputs(make_settings(**{variable: value}), db, question(assets, "train.jsonl"))

    assert not report.get("errors")
    assert said in report["left_out"][0]


def test_foreign_results_are_not_looked_at(make_settings, db, assets, tmp_path):
    owner = make_job(db)
    stolen = tmp_path / "data" / "files" / "jobs" / owner / "records.jsonl"
    stolen.parent.mkdir(parents=True)
    stolen.write_text((assets / "train.jsonl").read_text())

    report = preflight.inspect_inputs(make_settings(), db, {**question(assets, str(stolen)), "project": "other"})

    assert report["errors"][0]["error_type"] == "DATA_NOT_FOUND"
    assert "can't be used" in report["errors"][0]["message"]


def test_a_script_reads_its_data_as_it_likes(make_settings, db, assets, tmp_path):
    (tmp_path / "run.py").write_text("")
    asked = question(assets, str(assets))
    asked["spec"]["training_config"]["framework"] = {"type": "CUSTOM", "custom_script_path": str(tmp_path / "run.py")}

    report = preflight.inspect_inputs(make_settings(), db, asked)

    assert "errors" not in report
    assert "sources" not in report
