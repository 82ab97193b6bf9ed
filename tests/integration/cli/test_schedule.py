"""`trainyard schedule`: why a job waits, on a database of each kind, and replays of traces from files."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import Project
from simulation.planners import POLICIES
from tests.builders.factories import make_attempt, make_document, make_job, make_node, make_project
from tests.systems.commands import run, run_json, run_local, run_local_json

JOBS = "submitted_at,run_seconds,project,gpus,preemptible\n0,600,red,2,true\n10,60,blue,1,\n20,60,blue,2,\n"
NODES = "name,gpus,gpu_type\nbox,2,H100-80GB\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "nodes.csv").write_text(NODES)
    return [str(tmp_path / "jobs.csv"), "--nodes", str(tmp_path / "nodes.csv")]


def test_a_job_that_waits_is_explained_node_by_node(db: Database) -> None:
    with db.write() as session:
        small, busy = make_node(session, "small", devices=1), make_node(session, "busy")
        make_node(session, "away", devices=4, state="drained")
        make_attempt(session, make_job(session), busy)
        make_attempt(session, make_job(session), small)
        wanted = make_document(resource_config={"gpu_count": 2})
        job_id = make_job(session, document=wanted, pending_reason="needs 2 CPU slots").id

    answer = run_local_json("schedule", "explain", job_id)

    assert (answer["job"]["queue_position"], answer["job"]["pending_reason"]) == (1, "needs 2 CPU slots")
    assert [(fit["node"], fit["could_hold"], fit["starts_now"]) for fit in answer["nodes"]] == [
        ("away", True, False),
        ("busy", True, False),
        ("small", False, False),
    ]
    text = run_local("schedule", "explain", job_id).stdout
    assert "needs 2 CPU slots" in text
    assert "is drained" in text
    assert [line.split()[:2] for line in text.splitlines()[-3:]] == [
        ["away", "later"],
        ["busy", "later"],
        ["small", "never"],
    ]
    assert run_local("schedule", "explain", "job-1").exit_code == 1


def test_free_devices_of_a_node_that_is_too_small_are_not_shown(db: Database) -> None:
    with db.write() as session:
        make_attempt(session, make_job(session), make_node(session, "small", devices=1))
        job_id = make_job(session, document=make_document(resource_config={"gpu_count": 2})).id

    last = run_local("schedule", "explain", job_id).stdout.splitlines()[-1]

    assert last.endswith("has 1 of 2 such devices")


def test_shares_are_listed_in_serving_order(db: Database) -> None:
    with db.write() as session:
        node = make_node(session, devices=4)
        make_project(session, "red").quota = {"cpu_slots": {"deserved": 3, "limit": 8}}
        make_project(session, "blue").quota = {"cpu_slots": {"deserved": 1, "over_quota_weight": 2.0}}
        make_attempt(session, make_job(session, project="red"), node, device_indices=(0,))
        for index in (1, 2):
            make_attempt(session, make_job(session, project="blue"), node, device_indices=(index,))
        make_job(session, project="blue", state=JobState.QUEUED)

    answer = run_local_json("schedule", "shares")["shares"]

    blue = {"deserved": 1, "used": 2.0, "borrowed": 1.0, "limit": None, "over_quota_weight": 2.0}
    assert [each["project"] for each in answer] == ["red", "default", "blue"]
    assert answer[2] == {"project": "blue", "kind": "cpu_slots", "running_jobs": 2, "waiting_jobs": 1, **blue}
    lines = [line.split() for line in run_local("schedule", "shares").stdout.splitlines()]
    assert lines[0] == ["project", "of", "used", "deserved", "borrowed", "limit", "weight", "running", "waiting"]
    assert lines[1] == ["red", "CPU", "slots", "1", "3", "0", "8", "1", "1", "0"]


def test_shares_are_those_of_the_kinds_of_devices_that_there_are(db: Database) -> None:
    assert run_local("schedule", "shares").stdout == "no registered nodes\n"

    with db.write() as session:
        make_node(session, device_type="h100")

    assert {each["kind"] for each in run_local_json("schedule", "shares")["shares"]} == {"gpus"}


def test_where_it_may_start_comes_first(db: Database) -> None:
    with db.write() as session:
        make_attempt(session, make_job(session), make_node(session, "a-busy", devices=1))
        make_node(session, "b-free", devices=1)
        job_id = make_job(session).id

    assert [fit["starts_now"] for fit in run_local_json("schedule", "explain", job_id)["nodes"]] == [True, False]
    assert run_local("schedule", "explain", job_id).stdout.splitlines()[-2].split()[:2] == ["b-free", "now"]


def test_every_policy_is_compared_in_one_table(files: list[str], tmp_path: Path) -> None:
    picture = tmp_path / "out.svg"

    answer = run_json("schedule", "simulate", *files, "--picture", str(picture))

    assert list(answer["policies"]) == list(POLICIES)
    assert (answer["jobs"], answer["devices"]) == (3, {"h100": 2})
    assert all(each["finished"] == 3 for each in answer["policies"].values())
    assert ET.fromstring(picture.read_text()).tag.endswith("svg")
    lines = run("schedule", "simulate", *files, "--policy", "fifo", "--policy", "pack").stdout.splitlines()
    assert lines[0].split()[0] == "policy"
    assert [line.split()[0] for line in lines[1:3]] == ["fifo", "pack"]


def test_quotas_from_a_file_change_who_is_served(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "quotas.json").write_text(json.dumps({"blue": {"gpus": {"deserved": 2}}}))
    arguments = ["schedule", "simulate", *files, "--policy", "default"]

    free = run_json(*arguments)["policies"]["default"]
    quotas = ("--quotas", str(tmp_path / "quotas.json"), "--save-seconds", "5")
    bound = run_json(*arguments, *quotas)["policies"]["default"]

    assert (free["preemptions"], bound["preemptions"]) == (0, 1)
    assert bound["waits"]["project"]["blue"]["longest"] < free["waits"]["project"]["blue"]["longest"]


def test_the_cluster_as_it_is_now_is_replayed_empty(db: Database, files: list[str]) -> None:
    with db.write() as session:
        node = make_node(session, "box", device_type="h100", memory_mb=80_000)
        make_attempt(session, make_job(session), node)
        make_node(session, "away", device_type="h100", state="lost")
        session.add(Project(name="red", quota={"gpus": {"limit": 1}}))

    answer = run_json("schedule", "simulate", files[0], "--like-now", "--policy", "default")

    assert answer["devices"] == {"h100": 2}
    assert (answer["policies"]["default"]["finished"], answer["policies"]["default"]["refused"]) == (2, 1)


def test_where_no_job_starts_it_says_why(db: Database, files: list[str]) -> None:
    nothing = run("schedule", "simulate", files[0], "--like-now").stdout.splitlines()
    with db.write() as session:
        make_node(session, "box", devices=2, device_type="h100", memory_mb=81_559)
        make_node(session, "away", devices=4, device_type="h100", state="lost")
        make_project(session, "red").quota = {"gpus": {"limit": 1}}

    assert "no job started" in nothing
    assert nothing[-3::2] == [
        "2 never started, first job000002: needs 2 GPUs; no node is ready",
        "1 never started, first job000003: needs 1 GPU; no node is ready",
    ]
    answer = run_json("schedule", "simulate", files[0], "--like-now")["never_started"]
    assert [(each["first"], each["jobs"], each["policies"]) for each in answer] == [("job000002", 1, list(POLICIES))]
    assert answer[0]["why"].startswith("the project red may use at most 1 GPUs at a time, and the job needs 2")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "give the nodes"),
        (["--like-now", "--nodes", "nodes.csv"], "give the nodes"),
        (["--nodes", "bad.csv"], "bad.csv, line 1: the header matches no known format"),
        (["--nodes", "nodes.csv", "--quotas", "bad.csv"], "is not valid JSON"),
        (["--nodes", "nodes.csv", "--quotas", "list.json"], "must be an object"),
        (["--nodes", "nodes.csv", "--quotas", "wrong.json"], "deserved"),
        (["--nodes", "nodes.csv", "--policy", "magic"], "Invalid value for '--policy'"),
    ],
)
def test_what_cannot_be_replayed_is_reported_in_one_line(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], said: str
) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "wrong.json").write_text('{"red": {"gpus": {"deserved": -1}}}')
    monkeypatch.chdir(tmp_path)

    answer = run("schedule", "simulate", files[0], *more)

    assert answer.exit_code != 0
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_bad_line_of_the_trace_is_named(files: list[str]) -> None:
    Path(files[0]).write_text(JOBS + "30,soon,red,1,\n")

    answer = run("schedule", "simulate", *files)

    assert answer.exit_code == 1
    assert "jobs.csv, line 5, column run_seconds: is 'soon' and has to be a number" in answer.stderr


def test_what_is_made_up_can_be_replayed(tmp_path: Path) -> None:
    trace, nodes = str(tmp_path / "t.csv"), str(tmp_path / "n.csv")

    made = run_json("schedule", "generate", trace, nodes, "--jobs", "30", "--node-count", "2", "--seed", "7")

    assert (made["jobs"], made["nodes"]) == (30, 2)
    answer = run_json("schedule", "simulate", trace, "--nodes", nodes, "--policy", "first-fit")
    assert answer["devices"] == {"h100": 16}
    assert answer["policies"]["first-fit"]["finished"] == 30
    assert "30 jobs of" in run("schedule", "generate", trace, nodes, "--jobs", "30").stdout
