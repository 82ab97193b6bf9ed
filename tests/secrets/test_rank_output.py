"""A script that tells its own secrets, in every way there is: nothing of them is kept or shown."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography.fernet import Fernet

from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job, JobEvent
from app.security.secrets import SecretBox
from tests.secrets.canaries import Canaries
from tests.systems.forked_supervisors import ForkedSupervisors
from tests.systems.supervising import World, rows
from trainyard.protocol.messages import MAX_MESSAGE
from workers.supervisor.recording.log_lines import CUT_MARK, MAX_LINE_BYTES

TELLS = """
import base64, json, os, sys, time, urllib.parse
secret = os.environ["CANARY"]
print("raw", secret)
print("repr", [secret])
print("json", json.dumps({"a": secret}))
print("quoted", urllib.parse.quote(secret, safe=""))
print("hex", secret.encode().hex())
for before in ("", "a", "ab"):
    print("base64", base64.b64encode((before + secret + "end").encode()).decode())
    print("url-safe", base64.urlsafe_b64encode((before + secret).encode()).decode())
sys.stdout.flush()
os.write(1, ("split " + secret[:9]).encode())
time.sleep(0.3)
os.write(1, (secret[9:] + chr(10)).encode())
print("x" * (16 * 1024 - 20) + secret, flush=True)
print(secret + chr(13) + "drawn over " + secret, flush=True)
print("Authorization: Bearer " + secret + " https://user:" + secret.replace("/", "") + "@host/", file=sys.stderr)
print("the end", flush=True)
raise RuntimeError("it was " + secret)
"""
SAYS = """
import json, os, socket
secret, run = os.environ["CANARY"], os.environ["TRAINYARD_RUN_DIR"]
s = socket.socket(socket.AF_UNIX); fd = os.open(run, os.O_RDONLY)
s.connect(f"/proc/self/fd/{fd}/channel")
def say(**m): s.sendall(json.dumps(m).encode() + b"\\n")
say(type="hello", rank=0, can_checkpoint=True)
s.sendall(("no JSON " + secret + chr(10)).encode())
say(type=secret)
say(type="progress", step=secret)
say(type="metric", step=1, at=1.0, values={"of " + secret: 1.0})
say(type="result", stopped=None, step=1, final_metrics={"final " + secret: 1.0})
say(type="checkpoint", step=1, path=run + "/checkpoints/" + secret.replace("/", ""), metrics={})
say(type="error", rank=0, error_type="SCRIPT_ERROR", message="it was " + secret, stack="line 1: " + secret)
raise SystemExit(1)
"""


@pytest.fixture
def world(tmp_path: Path, sqlite_url: str, forked_supervisors: ForkedSupervisors) -> Iterator[World]:
    key = Fernet.generate_key().decode()
    world = World(tmp_path, sqlite_url, spawn=forked_supervisors.spawn, TRAINYARD_SECURITY_SECRET_KEY=key)
    yield world
    world.close()


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


def run(world: World, script: str, secret: str, *, max_retries: int = 0) -> Job:
    job_id = world.submit(script, max_retries=max_retries)
    box = SecretBox(world.settings.security.secret_key)
    with world.db.write() as session:
        session.get_one(Job, job_id).sealed_secrets = box.seal({"training_config.environment.CANARY": secret})
    world.take_up(job_id)
    return world.wait_for_end(job_id)


def stored_text(world: World) -> str:
    """Everything that the database holds about jobs."""
    kept = [*rows(world, Job), *rows(world, JobEvent), *rows(world, Attempt)]
    return json.dumps([{c.key: str(getattr(row, c.key)) for c in row.__table__.columns} for row in kept])


def test_what_a_script_prints_of_its_secrets_is_masked(world: World, canaries: Canaries) -> None:
    secret = canaries.plant("environment")

    job = run(world, TELLS, secret)

    lines = world.log(job.id)
    said = {line.split()[0]: line for line in lines if line}
    assert job.state is JobState.FAILED
    assert said["raw"] == "raw ***"
    assert said["split"] == "split ***"
    assert said["drawn"] == "drawn over ***"
    assert "the end" in lines
    assert canaries.found_in("\n".join(lines)) == set()
    assert canaries.found_in(stored_text(world)) == set()
    assert "RuntimeError: it was ***" in (job.error_stack or "")
    assert canaries.found_below(world.data_dir) == {}


def test_the_beginning_of_a_secret_where_a_line_is_cut_is_masked_too(world: World, canaries: Canaries) -> None:
    secret = canaries.plant("environment")

    job = run(world, TELLS, secret)

    cut = next(line for line in world.log(job.id) if line.endswith(CUT_MARK))
    assert cut == "x" * (MAX_LINE_BYTES - 20) + "***" + CUT_MARK


def test_what_a_rank_says_of_its_secrets_on_the_channel_is_masked(world: World, canaries: Canaries) -> None:
    secret = canaries.plant("environment")

    job = run(world, SAYS, secret)

    assert (job.state, job.error_message, job.error_stack) == (JobState.FAILED, "it was ***", "line 1: ***")
    assert canaries.found_in(stored_text(world)) == set()
    assert canaries.found_below(world.data_dir) == {}


def test_the_beginning_of_a_secret_where_an_error_is_cut_is_masked_too(world: World, canaries: Canaries) -> None:
    secret = canaries.plant("environment")

    job = run(world, SAYS.replace('"it was "', f'"x" * {MAX_MESSAGE - 20}'), secret)

    assert job.error_message == "x" * (MAX_MESSAGE - 20) + "***"


def test_a_rank_that_crashes_leaves_no_core_dump(world: World) -> None:
    job = run(world, "import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE)[0])\n", "unused-secret")

    assert world.log(job.id) == ["0"]


def test_the_search_finds_every_writing() -> None:
    canaries = Canaries()
    secret = canaries.plant("x")
    encoded = [base64.b64encode(("a" * n + secret + "b" * m).encode()) for n in range(3) for m in range(3)]

    hiding = [secret.encode(), quote(secret, safe="").encode(), secret.encode().hex().encode(), *encoded]

    assert [canaries.found_in(b"some" + text + b"text") for text in hiding] == [{"x"}] * len(hiding)
    assert canaries.found_in(b"nothing") == set()
