"""What is deleted while a request of OpenAI's API begins to need it: one of the two is refused, and nothing is left."""

import io
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from app.domain.model_names import ft_name
from app.models import RegisteredModel
from app.security.permissions import Role
from tests.builders.batches import CHAT, lines_of, request_line
from tests.builders.inference_requests import make_trained
from tests.systems.apps import Api

ROUNDS = 12
Call = Callable[[], tuple[int, Any]]
CHATS = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'


def ask(api: Api, method: str, path: str, body: Any = None, *, key: str | None = None) -> tuple[int, Any]:
    """Over a client of its own: this runs on many threads."""
    headers = {"Authorization": f"Bearer {key or api.key}"}
    answer = api.app.test_client().open(path, method=method, headers=headers, json=body)
    return answer.status_code, answer.json


def upload(api: Api, content: bytes, purpose: str, *, key: str | None = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key or api.key}"}
    form = {"purpose": purpose, "file": (io.BytesIO(content), "a.jsonl")}
    answer = api.app.test_client().post("/v1/files", headers=headers, data=form)
    return answer.status_code, answer.json


def at_once(round_: int, seconds: float, delete: Call, *others: Call) -> list[tuple[int, Any]]:
    """Delete meanwhile: before the others in the first round, a little later in each, and after them in the last.

    ``seconds``: what the others take.
    """
    waits = [0.0, *[2 * seconds] * len(others)] if round_ == 0 else [seconds * round_ / (ROUNDS - 2)]
    waits = [3 * seconds] if round_ == ROUNDS - 1 else waits
    start = threading.Barrier(1 + len(others))

    def begin(call: Call, wait: float) -> tuple[int, Any]:
        start.wait(20)
        time.sleep(wait)
        return call()

    calls = (delete, *others)
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(begin, calls, [*waits, *[0.0] * len(others)][: len(calls)]))


def taken(call: Call) -> float:
    """How long it takes by itself, the second time."""
    call()
    began = time.monotonic()
    call()
    return time.monotonic() - began


def stored(api: Api) -> set[str]:
    """Names of what the storage has of users, parts of uploads too."""
    roots = [api.folder / "data" / "files" / name for name in ("user-files", "uploads")]
    return {path.name for root in roots for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def tiny(api: Api) -> Api:
    """With a base model."""
    with api.db.write() as session:
        session.add(RegisteredModel(name="tiny", kind="base", location="/srv/models/tiny", created_by=""))
    return api


def batch(api: Api, file_id: str) -> tuple[int, Any]:
    return ask(api, "POST", "/v1/batches", {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"})


def training(api: Api, file_id: str, model: str = "tiny") -> tuple[int, Any]:
    return ask(api, "POST", "/v1/fine_tuning/jobs", {"training_file": file_id, "model": model})


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "purpose", "begin"),
    [(lines_of([request_line("a")]), "batch", batch), (CHATS, "fine-tune", training)],
    ids=["batch", "fine-tuning job"],
)
def test_a_file_is_deleted_or_used(
    tiny: Api, content: bytes, purpose: str, begin: Callable[[Api, str], tuple[int, Any]]
) -> None:
    kept = {upload(tiny, content, purpose)[1]["id"]}
    seconds = taken(partial(begin, tiny, *kept))
    outcomes = set()
    for number in range(ROUNDS):
        file_id = upload(tiny, content, purpose)[1]["id"]

        (deleted, gone), (begun, made) = at_once(
            number, seconds, partial(ask, tiny, "DELETE", f"/v1/files/{file_id}"), partial(begin, tiny, file_id)
        )

        assert (deleted, begun) in {(200, 400), (200, 404), (409, 200)}, (gone, made)
        outcomes.add(deleted)
        kept |= {file_id} if begun == 200 else set()
        assert ask(tiny, "GET", f"/v1/files/{file_id}")[0] == (200 if begun == 200 else 404)
    assert stored(tiny) == kept
    assert outcomes == {200, 409}


@pytest.mark.long
@pytest.mark.parametrize("path", ["/v1/models/{name}", "/v1/jobs/{job_id}?artifacts=true"], ids=["model", "its job"])
def test_a_model_is_deleted_or_trained_further(tiny: Api, path: str) -> None:
    file_id = upload(tiny, CHATS, "fine-tune")[1]["id"]
    seconds = taken(partial(training, tiny, file_id, fine_tune(tiny)[0]))
    outcomes = set()
    for number in range(ROUNDS):
        name, job_id = fine_tune(tiny)

        (deleted, gone), (begun, made) = at_once(
            number,
            seconds,
            partial(ask, tiny, "DELETE", path.format(name=name, job_id=job_id)),
            partial(training, tiny, file_id, name),
        )

        outcomes.add((deleted, begun))
        assert (deleted in (200, 204)) != (begun == 200), (gone, made)
        assert begun in (200, 400, 404, 409), made
    assert len(outcomes) > 1


def fine_tune(api: Api) -> tuple[str, str]:
    """The name of a model, and the job that made it."""
    with api.db.write() as session:
        job = make_trained(session, adapter=True, training_type="LORA")
        name = ft_name("tiny", "default", None, job.id)
        session.add(RegisteredModel(name=name, kind="fine_tune", project="default", job_id=job.id, created_by="x"))
        return name, job.id


@pytest.mark.long
def test_a_file_is_deleted_once(api: Api) -> None:
    for _ in range(ROUNDS):
        file_id = upload(api, CHATS, "user_data")[1]["id"]

        answers = at_once(1, 0.0, *[partial(ask, api, "DELETE", f"/v1/files/{file_id}")] * 3)

        assert sorted(status for status, _ in answers) == [200, 404, 404]
    assert stored(api) == set()


@pytest.mark.long
def test_an_upload_is_completed_or_cancelled(api: Api) -> None:
    made, seconds = set(), 0.0
    for number in range(-2, ROUNDS):
        path, part = begun_upload(api)
        complete = partial(ask, api, "POST", f"{path}/complete", {"part_ids": [part]})
        if number < 0:
            began = time.monotonic()
            made.add(complete()[1]["file"]["id"])
            seconds = time.monotonic() - began
            continue

        (cancelled, _), (completed, done), (added, late) = at_once(
            number, seconds, partial(ask, api, "POST", f"{path}/cancel"), complete, partial(part_of, api, path)
        )

        assert (completed, cancelled) in {(200, 409), (409, 200)}, done
        assert added in (200, 409), late
        made |= {done["file"]["id"]} if completed == 200 else set()
    assert stored(api) == made
    assert 2 < len(made) < ROUNDS + 2
    for file_id in made:
        assert api.call("GET", f"/v1/files/{file_id}/content").data == CHATS


def begun_upload(api: Api) -> tuple[str, str]:
    """Where it is, and its only part, which has everything."""
    asked = {"filename": "a.bin", "bytes": len(CHATS), "mime_type": "text/plain", "purpose": "user_data"}
    path = f"/v1/uploads/{ask(api, 'POST', '/v1/uploads', asked)[1]['id']}"
    return path, part_of(api, path)[1]["id"]


def part_of(api: Api, path: str) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {api.key}"}
    form = {"data": (io.BytesIO(CHATS), "part")}
    answer = api.app.test_client().post(f"{path}/parts", headers=headers, data=form)
    return answer.status_code, answer.json


@pytest.mark.long
def test_a_project_is_deleted_or_gets_the_file(api: Api) -> None:
    keys = [api.make_key(Role.USER, f"team-{number}") for number in range(ROUNDS)]
    seconds = taken(partial(upload, api, CHATS, "user_data"))
    kept, outcomes = stored(api), set()
    for number, key in enumerate(keys):
        (deleted, gone), (begun, made) = at_once(
            number,
            seconds,
            partial(ask, api, "DELETE", f"/v1/projects/team-{number}"),
            partial(upload, api, CHATS, "user_data", key=key),
        )

        assert deleted in (204, 409), gone
        assert begun in ((401, 404, 409) if deleted == 204 else (200,)), (gone, made)
        kept |= {made["id"]} if begun == 200 else set()
        outcomes.add(deleted)
    assert stored(api) == kept
    assert outcomes == {204, 409}
