"""A training whose completions come from a role of their own: equal to the same training without, whatever happens."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from config.settings import load_settings
from tests.builders.example_jobs import ROOT, filled_in, shortened
from tests.faults.cluster import SHORT
from tests.systems.forked_agents import ForkedAgents
from tests.systems.installations import running_system
from tests.systems.system import System, wait_for
from workers.job_secrets import attempt_secret

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

STEPS = 16  # enough that a rollout killed after the second step is needed again
STEPS_OF_TWO = 6
# A server of rewards for the function that follows, which asks again while it is away.
JUDGE = """
import http.server, json, os
from vowels import share_of_vowels
class Judge(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps([share_of_vowels(text) for text in texts]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
place = json.loads(os.environ["TRAINYARD_TASKS"])[os.environ["TRAINYARD_ROLE"]][0]
print("judges", flush=True)
http.server.HTTPServer((place["address"], place["port"]), Judge).serve_forever()
"""
ASKING = """
import json, os, time, urllib.request
def reward(prompts, completions, **columns):
    place = json.loads(os.environ["TRAINYARD_TASKS"])["judge"][0]
    asked = json.dumps(completions).encode()
    while True:
        try:
            with urllib.request.urlopen(f"http://{place['address']}:{place['port']}", data=asked) as answer:
                return json.load(answer)
        except OSError:
            time.sleep(0.2)
"""
SECONDS = 250


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, demo_assets: Path) -> dict[str, str]:
    """Of nodes with two slots each: a training with one rollout has a node, with two or three both."""
    config = tmp_path_factory.mktemp("configuration") / "node.toml"
    config.write_text('[[devices]]\ntype = "cpu"\ncount = 2\n')
    roots = f"{demo_assets}:{ROOT / 'examples'}:{config.parent}"
    return {"TRAINYARD_STORAGE_ROOTS": roots, "TRAINYARD_NODE_CONFIG": str(config), **SHORT}


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory,
    owned_pids: set[int],
    forked_agents: ForkedAgents,
    settings: dict[str, str],
) -> Iterator[System]:
    with running_system(tmp_path_factory.mktemp("rollouts") / "system", owned_pids, "n1", "n2", **settings) as made:
        forked_agents.serve_system(made)
        yield made


def document(
    assets: Path, *, rollouts: int, devices: int = 1, nodes: int = 1, steps: int = STEPS, every: int = STEPS
) -> dict[str, Any]:
    """The example, short; without rollouts the same as one role. ``devices``: that train on each of ``nodes``;
    ``every``: steps between checkpoints, of which the best one is the result.
    """
    found = filled_in(
        ROOT / "examples/jobs/rlhf-grpo-roles.json", {"ASSETS": str(assets), "EXAMPLES": str(ROOT / "examples")}
    )
    found = shortened(found, steps, every)
    found["training_config"]["max_retries"] = 3
    if rollouts:
        found["tasks"][0]["resource_config"]["gpu_count"] = devices
        if nodes > 1:
            apart = {"role": "trainer", "where": "other_nodes"}
            found["tasks"][0] |= {"count": nodes, "affinity": [apart]}
        found["tasks"][1]["count"] = rollouts
        return found
    del found["tasks"]
    return {**found, "resource_config": {"gpu_count": devices, "node_count": nodes}}


def result(system: System, job_id: str) -> tuple[str, list[float]]:
    """Digest of the weights, and the rewards of all steps."""
    series = system.get(f"/v1/jobs/{job_id}/metrics?names=reward")["series"]["reward"]
    return str(system.get(f"/v1/jobs/{job_id}/report")["model_hash"]), [point[2] for point in series]


@pytest.fixture(scope="module")
def expected(system: System, demo_assets: Path) -> tuple[str, list[float]]:
    """Of the same training as one role, by the same engine."""
    job_id = system.submit(document(demo_assets, rollouts=0))
    system.wait_for_status(job_id, "COMPLETED", seconds=SECONDS)
    return result(system, job_id)


def instances(system: System, job_id: str) -> list[dict[str, dict[str, Any]]]:
    """Of each attempt, by role and index."""
    attempts = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    return [{f"{each['role']} {each['index']}": each for each in attempt["instances"]} for attempt in attempts]


def rollouts_of(system: System, job_id: str) -> list[psutil.Process]:
    return [each for each in system.processes_of(job_id) if "workers.trainers.rollouts.main" in each.cmdline()]


def secret_of(system: System, job_id: str) -> str:
    """By which the ranks of its first attempt know each other."""
    key = (system.data_dir / "secret.key").read_text().strip()
    settings = load_settings(system.environment | {"TRAINYARD_SECURITY_SECRET_KEY": key})
    return attempt_secret(settings, job_id=job_id, attempt=1)


def test_a_rollout_that_is_killed_starts_again_and_the_weights_are_those_of_one_role(
    system: System, demo_assets: Path, expected: tuple[str, list[float]]
) -> None:
    job_id = system.submit(document(demo_assets, rollouts=1))
    system.wait_for_step(job_id, 2, seconds=SECONDS)
    (rollout,) = rollouts_of(system, job_id)
    is_forked = [Path(f"/proc/{each.pid}/exe").readlink().match("/memfd:*") for each in system.ranks_of(job_id)]
    assert is_forked == [True], "it has its imports behind it"
    secret = secret_of(system, job_id)

    rollout.send_signal(signal.SIGKILL)
    job = system.wait_for_status(job_id, "COMPLETED", seconds=SECONDS)

    assert job["attempt"] == 1
    assert result(system, job_id) == expected
    events = system.get(f"/v1/jobs/{job_id}/events?page_size=100")["events"]
    (restarted,) = (event for event in events if event["type"] == "task.restarted")
    assert (restarted["data"]["role"], restarted["data"]["exit_code"]) == ("rollout", 137)
    (placed,) = instances(system, job_id)
    assert placed["trainer 0"]["node"] == placed["rollout 0"]["node"]
    assert placed["trainer 0"]["exit_code"] == 0
    assert {each["world_size"] for each in system.get(f"/v1/jobs/{job_id}/checkpoints")["checkpoints"]} == {1}
    said = f"{system.job(job_id)}{events}{system.get(f'/v1/jobs/{job_id}/logs?limit=1000')}"
    assert secret not in said
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process left")


def test_a_training_with_rollouts_on_another_node_is_paused_and_resumed_exactly(
    system: System, demo_assets: Path, expected: tuple[str, list[float]]
) -> None:
    job_id = system.submit(document(demo_assets, rollouts=2))
    system.wait_for_step(job_id, 2, seconds=SECONDS)

    assert system.call("POST", f"/v1/jobs/{job_id}/pause", {})[0] == 202
    system.wait_for_status(job_id, "PAUSED", seconds=90)
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process left")
    assert system.call("POST", f"/v1/jobs/{job_id}/resume", {})[0] == 202
    job = system.wait_for_status(job_id, "COMPLETED", seconds=SECONDS)

    first, second = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert job["attempt"] == 2
    assert second["start_step"] == first["end_step"] >= 2
    assert {each["node"] for each in instances(system, job_id)[0].values()} == {"n1", "n2"}
    assert result(system, job_id) == expected


def test_two_ranks_that_train_are_one_world_beside_their_rollouts(system: System, demo_assets: Path) -> None:
    made = [document(demo_assets, rollouts=count, devices=2, steps=2, every=2) for count in (0, 1)]
    alone, beside = (system.submit(each) for each in made)
    for job_id in (alone, beside):
        system.wait_for_status(job_id, "COMPLETED", seconds=2 * SECONDS)

    assert result(system, beside) == result(system, alone)
    (placed,) = instances(system, beside)
    assert [(each["first_rank"], each["ranks"]) for each in placed.values()] == [(0, 2), (2, 1)]
    assert {each["world_size"] for each in system.get(f"/v1/jobs/{beside}/checkpoints")["checkpoints"]} == {2}


def held(system: System, job_id: str, *, after: int = 2) -> psutil.Process:
    """Its rollout, stopped by a signal after this step, once the training waits for it."""
    system.wait_for_step(job_id, after, seconds=SECONDS)
    (rollout,) = rollouts_of(system, job_id)
    rollout.suspend()
    seen = [-1.0]

    def waits() -> bool:
        """Completions that it has sent before are the last ones."""
        seen.append(system.job(job_id)["current_step"])
        time.sleep(0.5)
        return len({*seen[-6:]}) == 1

    wait_for(waits, seconds=60, what="a training that makes no step")
    return rollout


def test_a_pause_does_not_wait_for_a_rollout_that_hangs(
    system: System, demo_assets: Path, expected: tuple[str, list[float]]
) -> None:
    job_id = system.submit(document(demo_assets, rollouts=1))
    held(system, job_id)
    reached = system.job(job_id)["current_step"]

    assert system.call("POST", f"/v1/jobs/{job_id}/pause", {})[0] == 202
    system.wait_for_status(job_id, "PAUSED", seconds=60)
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process left")
    assert system.call("POST", f"/v1/jobs/{job_id}/resume", {})[0] == 202
    system.wait_for_status(job_id, "COMPLETED", seconds=SECONDS)

    first, second = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert first["end_step"] == second["start_step"] == reached, "the step that it waited in was abandoned"
    assert result(system, job_id) == expected


def test_a_training_that_waits_for_a_rollout_is_paused_without_saving_and_cancelled(
    system: System, demo_assets: Path
) -> None:
    job_id = system.submit(document(demo_assets, rollouts=1, steps=100))
    held(system, job_id)

    assert system.call("POST", f"/v1/jobs/{job_id}/pause", {"save_checkpoint": False})[0] == 202
    system.wait_for_status(job_id, "PAUSED", seconds=60)
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process left")
    reached = system.job(job_id)["current_step"]
    assert system.call("POST", f"/v1/jobs/{job_id}/resume", {})[0] == 202
    held(system, job_id, after=reached + 1)
    assert system.call("POST", f"/v1/jobs/{job_id}/cancel", {})[0] == 200
    system.wait_for_status(job_id, "CANCELLED", seconds=30)
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process left")


@pytest.fixture(scope="module")
def expected_of_two(system: System, demo_assets: Path) -> tuple[str, list[float]]:
    """Of two ranks on one node, as one role."""
    job_id = system.submit(document(demo_assets, rollouts=0, devices=2, steps=STEPS_OF_TWO, every=2))
    system.wait_for_status(job_id, "COMPLETED", seconds=2 * SECONDS)
    return result(system, job_id)


def test_a_training_on_two_nodes_beside_rollouts_is_that_of_one_node(
    system: System, demo_assets: Path, expected_of_two: tuple[str, list[float]]
) -> None:
    """Also after a pause, and when a rollout on the second node was killed."""
    job_id = system.submit(document(demo_assets, rollouts=2, nodes=2, steps=STEPS_OF_TWO, every=2))
    system.wait_for_step(job_id, 1, seconds=SECONDS)
    (placed,) = instances(system, job_id)
    assert [(name, each["first_rank"], each["ranks"]) for name, each in placed.items()] == [
        ("trainer 0", 0, 1),
        ("trainer 1", 1, 1),
        ("rollout 0", 2, 1),
        ("rollout 1", 3, 1),
    ]
    assert {placed["trainer 0"]["node"], placed["trainer 1"]["node"]} == {"n1", "n2"}

    next(each for each in rollouts_of(system, job_id) if each.environ()["TRAINYARD_TASK_INDEX"] == "1").kill()
    system.wait_for_step(job_id, 3, seconds=SECONDS)
    assert system.call("POST", f"/v1/jobs/{job_id}/pause", {})[0] == 202
    system.wait_for_status(job_id, "PAUSED", seconds=90)
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process left")
    assert system.call("POST", f"/v1/jobs/{job_id}/resume", {})[0] == 202
    job = system.wait_for_status(job_id, "COMPLETED", seconds=2 * SECONDS)

    assert job["attempt"] == 2
    assert result(system, job_id) == expected_of_two
    assert {each["world_size"] for each in system.get(f"/v1/jobs/{job_id}/checkpoints")["checkpoints"]} == {2}
    sent = [
        point[2] for point in system.get(f"/v1/jobs/{job_id}/metrics?names=weights_bytes")["series"]["weights_bytes"]
    ]
    of_one = sent[0] / 2  # both rollouts get the weights of the first step
    # None get them anew in the first step after an evaluation, for which they got them. The one that is killed lacks
    # them then, or gets those of a step again.
    assert {*sent} <= {0, of_one, 2 * of_one, 3 * of_one}, sent
    assert sum(each in (of_one, 3 * of_one) for each in sent) <= 1, sent
    for rank in (1, 2, 3):
        assert system.log_lines(job_id, rank=rank)


def test_a_training_that_loses_one_of_its_nodes_goes_on_from_its_checkpoint(
    make_system: Callable[..., System],
    forked_agents: ForkedAgents,
    demo_assets: Path,
    settings: dict[str, str],
    expected_of_two: tuple[str, list[float]],
) -> None:
    # Nodes of one data directory share the server that forks supervisors: each has its own processes only without.
    system = make_system(**settings, TRAINYARD_NODE_WARM="off").start("n1", "n2")
    forked_agents.serve_system(system)
    job_id = system.submit(document(demo_assets, rollouts=1, nodes=2, steps=STEPS_OF_TWO, every=2))
    system.wait_for_step(job_id, 3, seconds=SECONDS)
    second = instances(system, job_id)[0]["trainer 1"]["node"]
    lost = psutil.Process(system.pid(f"node-{second}")).children(recursive=True)

    system.kill(f"node-{second}")
    for process in lost:
        with suppress(psutil.NoSuchProcess):  # it ended with its parent
            process.kill()
    wait_for(lambda: system.job(job_id)["status"] in ("QUEUED", "SCHEDULING"), seconds=60, what="the whole job to stop")
    wait_for(lambda: not system.ranks_of(job_id) and not rollouts_of(system, job_id), seconds=20, what="no rank left")
    system.start_node(second)
    system.wait_for_status(job_id, "COMPLETED", seconds=2 * SECONDS)

    first, again = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert first["cause"] in ("NODE_LOST", "SUPERVISOR_LOST")
    assert again["start_step"] >= 2
    assert result(system, job_id) == expected_of_two


def ranks_of_role(job_id: str, role: str) -> Iterator[psutil.Process]:
    """By their variables: the command line of a script beside a training does not name the job."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended meanwhile
            variables = process.environ()
            if (variables.get("TRAINYARD_JOB_ID"), variables.get("TRAINYARD_ROLE")) == (job_id, role):
                yield process


def test_a_script_beside_a_training_rewards_it_and_ends_with_it(
    system: System, demo_assets: Path, settings: dict[str, str], expected: tuple[str, list[float]]
) -> None:
    """It starts again alone when it is killed."""
    place = Path(settings["TRAINYARD_NODE_CONFIG"]).parent
    (place / "judge.py").write_text(JUDGE)
    (place / "asking.py").write_text(ASKING)
    shutil.copy(ROOT / "examples/rewards/vowels.py", place)
    asked = document(demo_assets, rollouts=1)
    asked["training_config"]["hyperparameters"]["reward"] = str(place / "asking.py")
    program = {"custom_script_path": str(place / "judge.py")}
    judge = {"role": "judge", "training_config": program, "sidecar": True, "restart": "task"}
    asked["tasks"] = [*asked["tasks"], judge]
    job_id = system.submit(asked)
    system.wait_for_step(job_id, 2, seconds=SECONDS)

    (killed,) = ranks_of_role(job_id, "judge")
    killed.kill()
    system.wait_for_status(job_id, "COMPLETED", seconds=SECONDS)

    assert result(system, job_id) == expected
    (placed,) = instances(system, job_id)
    assert (placed["trainer 0"]["exit_code"], placed["judge 0"]["exit_code"]) == (0, 143)
    lines = system.get(f"/v1/jobs/{job_id}/logs?role=judge")["lines"]
    assert [line["line"] for line in lines] == ["judges", "judges"]
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process left")
