"""Sources behind URIs through a whole attempt: its supervisor fetches them, its ranks read them in their sandbox."""

import os
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from app.domain.lifecycle.states import JobState
from app.domain.spec.secrets import CODE_LOGIN
from app.models import Job
from app.security.secrets import SecretBox
from tests.doubles.git_server import running_git_server
from tests.fetching.web_server import file, status
from tests.systems.supervising import World

LINES = b'{"text": "hello"}\n'
READS = """
from trainyard import hooks
run = hooks.init()
for path in run.data_paths:
    print(path.rpartition("/")[2], open(path).read().strip(), flush=True)
"""


@pytest.fixture
def world(tmp_path, sqlite_url, web, forked_supervisors):
    world = World(
        tmp_path,
        sqlite_url,
        spawn=forked_supervisors.spawn,
        TRAINYARD_FETCH_SCAIDRIVE_URL=web.url("/drive"),
        TRAINYARD_FETCH_ALLOW="127.0.0.1",
        TRAINYARD_SECURITY_SECRET_KEY=Fernet.generate_key().decode(),
    )
    yield world
    world.close()


def run(world, *paths, secrets):
    job_id = world.submit(READS)
    with world.db.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = {**job.spec, "data_config": {"sources": [{"path": path} for path in paths]}}
        job.sealed_secrets = SecretBox(world.settings.security.secret_key).seal(secrets)
    world.take_up(job_id)
    return world.wait_for_end(job_id)


def test_job_reads_what_was_fetched_as_its_user(world, web):
    web.answers |= {"/a.jsonl": file(LINES), "/drive/team/b.jsonl": file(LINES * 2)}

    job = run(world, web.url("/a.jsonl"), "scaidrive://team/b.jsonl", secrets={"forwarded.scaidrive": "hunter2"})

    assert job.state is JobState.COMPLETED, world.describe(job.id)
    text = LINES.decode().strip()
    assert world.log(job.id) == [f"a.jsonl {text}", f"b.jsonl {text}", text]
    assert [seen.headers.get("authorization") for seen in web.seen] == [None, "Bearer hunter2"]
    assert not [path for path in world.data_dir.rglob("*") if b"hunter2" in read(path)]


# What the rank can read of itself and of other processes, and its files.
SEARCHES = """
import glob, os, pathlib
found = []
for path in [*glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/cmdline")]:
    try:
        found += [path] if "NEEDLE".lower().encode() in open(path, "rb").read() else []
    except OSError:
        pass
for path in pathlib.Path(os.environ["TRAINYARD_RUN_DIR"]).rglob("*"):
    if path.is_file() and path.name != "train.py" and os.access(path, os.R_OK):
        found += [str(path)] if "NEEDLE".lower().encode() in path.read_bytes() else []
print("found", found, flush=True)
print("hidden" + "-needle", flush=True)
"""


@pytest.mark.long
def test_job_runs_private_code_and_has_nothing_of_what_opened_it(world, tmp_path, monkeypatch):
    (tmp_path / "git").mkdir()
    with running_git_server(tmp_path / "git") as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        server.private, server.login = True, "me:hidden-needle"
        commit = server.commit("code", {"train.py": SEARCHES.replace("NEEDLE", "HIDDEN-NEEDLE")})
        job_id = world.submit(READS)
        with world.db.write() as session:
            job = session.get_one(Job, job_id)
            framework = {
                "type": "CUSTOM",
                "custom_script_path": "train.py",
                "custom_code_dir": f"{server.url('code')}@{commit}",
                "custom_code_credentials": {"username": "***", "password": "***"},
            }
            job.spec = {**job.spec, "training_config": {**job.spec["training_config"], "framework": framework}}
            login = {f"{CODE_LOGIN}.username": "me", f"{CODE_LOGIN}.password": "hidden-needle"}
            job.sealed_secrets = SecretBox(world.settings.security.secret_key).seal(login)
        world.take_up(job_id)

        ended = world.wait_for_end(job_id)

    assert ended.state is JobState.COMPLETED, world.describe(job_id)
    assert world.log(job_id) == ["found []", "***"], "what the job prints by itself is masked, too"
    assert not [path for path in world.data_dir.rglob("*") if b"hidden-needle" in read(path)]


def test_source_that_is_not_there_fails_the_job_at_once(world, web):
    web.answers["/drive/team/b.jsonl"] = status(403)

    job = run(world, "scaidrive://team/b.jsonl", secrets={"forwarded.scaidrive": "hunter2"})

    assert job.state is JobState.FAILED
    assert job.error_type == "DATA_NOT_FOUND"
    assert "scaidrive://team/b.jsonl" in job.error_message
    assert "X-ScaiDrive-Token" in job.error_message


def read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else b""
