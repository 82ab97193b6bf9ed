"""Sources behind URIs through a whole attempt: its supervisor fetches them, its ranks read them in their sandbox."""

import os
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.security.secrets import SecretBox
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


def test_source_that_is_not_there_fails_the_job_at_once(world, web):
    web.answers["/drive/team/b.jsonl"] = status(403)

    job = run(world, "scaidrive://team/b.jsonl", secrets={"forwarded.scaidrive": "hunter2"})

    assert job.state is JobState.FAILED
    assert job.error_type == "DATA_NOT_FOUND"
    assert "scaidrive://team/b.jsonl" in job.error_message
    assert "X-ScaiDrive-Token" in job.error_message


def read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else b""
