"""Files, uploads and models by OpenAI's own client, in one process with the server."""

import io
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import openai
import pytest

from app.database.engine import Database
from app.domain.errors import LimitExceeded
from app.http import idempotency
from app.http.context import EXTENSION
from app.http.slots import Slots
from app.security.permissions import Role
from tests.integration.compat.openai_client import client_of
from tests.systems.apps import Api
from tests.systems.disks import Disk
from tests.systems.engines import engine_on

LINE = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}).encode()
CONTENT = (LINE + b"\n") * 3


@pytest.fixture
def sqlite_api_of_small_files(sqlite_url: str, tmp_path: Path) -> Iterator[Api]:
    bound = Database().bind(engine_on(sqlite_url))
    made = Api(bound, tmp_path, TRAINYARD_FILES_MAX_BYTES="2000")
    yield made
    made.close()
    bound.close()


def named(content: bytes = CONTENT, name: str = "train.jsonl") -> tuple[str, bytes]:
    return name, content


def test_a_file_is_uploaded_listed_read_and_deleted(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch):
    client, _ = client_of(sqlite_api, monkeypatch)
    ids = [client.files.create(file=named(), purpose="fine-tune").id for _ in range(3)]
    kept = client.files.create(
        file=io.BytesIO(b"x" * 600_000), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
    )

    listed = client.files.list(limit=2, purpose="fine-tune")
    oldest = client.files.list(order="asc", limit=1).data[0]
    first = client.files.retrieve(ids[0])
    part = client.files.with_raw_response.content(ids[0], extra_headers={"Range": "bytes=0-9"})
    deleted = client.files.delete(ids[1])

    assert [file.id for file in listed] == [*reversed(ids)]  # of all pages
    assert (oldest.id, first.bytes, first.filename, first.status) == (ids[0], len(CONTENT), "train.jsonl", "uploaded")
    assert kept.expires_at == kept.created_at + 3600
    assert (kept.status, kept.bytes) == ("processed", 600_000)
    assert client.files.content(ids[0]).read() == CONTENT
    assert (part.status_code, part.content) == (206, CONTENT[:10])
    assert (deleted.id, deleted.deleted) == (ids[1], True)
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(ids[1])


def test_an_upload_in_parts_becomes_a_file(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch):
    client, _ = client_of(sqlite_api, monkeypatch)

    done = client.uploads.upload_file_chunked(
        file=CONTENT,
        filename="train.jsonl",
        bytes=len(CONTENT),
        mime_type="application/jsonl",
        purpose="fine-tune",
        part_size=100,
    )
    other = client.uploads.create(filename="x", bytes=5, mime_type="text/plain", purpose="user_data")
    client.uploads.parts.create(other.id, data=b"abc")

    assert done.status == "completed"
    assert done.file is not None
    assert client.files.content(done.file.id).read() == CONTENT
    assert client.uploads.cancel(other.id).status == "cancelled"
    with pytest.raises(openai.ConflictError) as refused:
        client.uploads.parts.create(other.id, data=b"de")
    assert refused.value.code == "invalid_state"


@pytest.mark.both_databases
def test_a_request_whose_answer_is_lost_does_one_thing(api: Api, monkeypatch: pytest.MonkeyPatch):
    client, connection = client_of(api, monkeypatch)
    asked: dict[str, Any] = {"filename": "x", "bytes": 5, "mime_type": "text/plain", "purpose": "user_data"}

    twice = [client.files.create(file=named(), purpose="fine-tune").id for _ in range(2)]
    connection.losing = 2
    cut = client.files.create(file=named(), purpose="fine-tune").id
    after = client.files.create(file=named(), purpose="fine-tune").id
    connection.losing = 1
    uploads = [client.uploads.create(**asked).id for _ in range(2)]
    connection.losing = 1
    cancelled = client.uploads.cancel(uploads[0])

    assert [file.id for file in client.files.list(order="asc")] == [*twice, cut, after]
    assert len({*twice, cut, after}) == 4
    assert len(set(uploads)) == 2
    assert cancelled.status == "cancelled"
    with pytest.raises(openai.ConflictError):  # asked anew, not again
        client.uploads.cancel(uploads[0])
    assert connection.sent[-1].headers["x-stainless-retry-count"] == "0"  # a conflict is not repeated


@pytest.mark.both_databases
@pytest.mark.parametrize("is_read_late", [False, True])  # the first one arrives first, and is read after the other
@pytest.mark.parametrize(("first", "meanwhile", "made"), [("0", "1", 1), ("1", "0", 1), ("1", "2", 1), ("0", "0", 2)])
def test_equal_requests_at_once_are_one_if_one_repeats_the_other(
    api: Api, monkeypatch: pytest.MonkeyPatch, first: str, meanwhile: str, made: int, *, is_read_late: bool
):
    begin, answers = idempotency.begin, []

    def ask(count: str) -> None:
        body = {"filename": "x", "bytes": 5, "mime_type": "text/plain", "purpose": "user_data"}
        answers.append(api.post("/v1/uploads", body, headers={"x-stainless-retry-count": count}))

    def begin_slowly(document: dict[str, object], **more: Any) -> object:
        monkeypatch.setattr(idempotency, "begin", begin)
        earlier = None if is_read_late else begin(document, **more)
        with ThreadPoolExecutor(1) as other:
            other.submit(ask, meanwhile).result()
        return begin(document, **more) if is_read_late else earlier

    monkeypatch.setattr(idempotency, "begin", begin_slowly)
    ask(first)

    assert [answer.status_code for answer in answers] == [200, 200]
    assert len({(answer.json or {})["id"] for answer in answers}) == made


def test_completing_an_upload_takes_a_slot_as_a_large_body_does(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch):
    client, _ = client_of(sqlite_api, monkeypatch)
    upload = client.uploads.create(filename="x", bytes=3, mime_type="text/plain", purpose="user_data")
    part = client.uploads.parts.create(upload.id, data=b"abc")
    backend = sqlite_api.app.extensions[EXTENSION]
    opened, free = backend.plane.storage.open, []

    def open_counting(key: str) -> object:
        free.append(_free_slots(backend.bodies))
        return opened(key)

    monkeypatch.setattr(backend.plane.storage, "open", open_counting)
    client.uploads.complete(upload.id, part_ids=[part.id])

    assert free == [_free_slots(backend.bodies) - 1]


def _free_slots(slots: Slots) -> int:
    with ExitStack() as taken:
        for number in count():
            try:
                taken.enter_context(slots.held(f"project-{number}"))
            except LimitExceeded:
                return number
    raise AssertionError


def _form(*parts: tuple[str, str | None, bytes], end: bytes = b"--x--\r\n") -> bytes:
    body = b""
    for name, filename, content in parts:
        file = f'; filename="{filename}"' if filename is not None else ""
        body += f'--x\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + content + b"\r\n"
    return body + end


FILE, PURPOSE = ("file", "a.jsonl", LINE), ("purpose", None, b"fine-tune")
BAD_FORMS = {
    "no purpose": (_form(FILE), 400, "purpose"),
    "no file": (_form(PURPOSE), 400, "file"),
    "two files": (_form(FILE, FILE, PURPOSE), 400, "file"),
    "no name": (_form(("file", "", LINE), PURPOSE), 400, "file"),
    "no file but a text": (_form(("file", None, LINE), PURPOSE), 400, "file"),
    "a purpose twice": (_form(PURPOSE, PURPOSE, FILE), 400, "purpose"),
    "a purpose that is a file": (_form(("purpose", "a", b"fine-tune"), FILE), 400, "purpose"),
    "another file": (_form(("files", "a", LINE), PURPOSE), 400, "files"),
    "another field": (_form(PURPOSE, FILE, ("name", None, b"x")), 400, "name"),
    "another purpose": (_form(("purpose", None, b"vision"), FILE), 400, "purpose"),
    "an expiry without an anchor": (
        _form(PURPOSE, FILE, ("expires_after[seconds]", None, b"3600")),
        400,
        "expires_after[anchor]",
    ),
    "an hour that is none": (
        _form(PURPOSE, FILE, ("expires_after[seconds]", None, b"1h"), ("expires_after[anchor]", None, b"created_at")),
        400,
        "expires_after[seconds]",
    ),
    "not UTF-8": (_form(("purpose", None, b"\xff"), FILE), 400, "purpose"),
    "a long field": (_form(("purpose", None, b"x" * 5000), FILE), 400, "purpose"),
    "cut off": (_form(PURPOSE, FILE, end=b""), 400, None),
    "cut off in the file": (_form(PURPOSE, FILE)[:-20], 400, None),
    "no form": (b"hello", 400, None),
    "nothing": (_form(), 400, "file"),
    "too large": (_form(PURPOSE, ("file", "a", b"x" * 2001)), 413, None),
    "far too large": (_form(PURPOSE, ("file", "a", b"x" * 2_000_000)), 413, None),
    "too much beside the file": (_form(*[(f"f{n}", None, b"") for n in range(200)]), 413, None),
}


def test_a_bad_form_is_refused_and_leaves_nothing(sqlite_api_of_small_files: Api):
    api = sqlite_api_of_small_files
    headers = {"Content-Type": "multipart/form-data; boundary=x"}

    for name, (body, status, param) in BAD_FORMS.items():
        answer = api.call("POST", "/v1/files", data=body, headers=headers)
        assert answer.status_code == status, (name, answer.text)
        assert answer.json is not None
        assert answer.json["error"]["param"] == param, (name, answer.text)

    assert api.call("GET", "/v1/files").json == {
        "object": "list",
        "data": [],
        "has_more": False,
        "first_id": None,
        "last_id": None,
    }
    assert [path for path in api.folder.rglob("*user-files*/**/*") if path.is_file()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_while_the_storage_takes_nothing_a_file_is_refused_for_now_and_leaves_nothing(
    sqlite_url: str, tmp_path: Path
) -> None:
    bound, disk = Database().bind(engine_on(sqlite_url)), Disk(tmp_path / "small")
    disk.mount()
    api = Api(bound, tmp_path, TRAINYARD_STORAGE_URL=f"file://{disk.path}/files")
    content = b"x" * 300_000
    try:
        disk.fill(leaving=100_000)
        before = [path for path in disk.path.rglob("*") if path.is_file()]
        away = api.client.post("/v1/files", data=_upload(content), headers={"Authorization": f"Bearer {api.key}"})
        left = [path for path in disk.path.rglob("*") if path.is_file()]
        listed = api.call("GET", "/v1/files").json
        disk.clear()
        stored = api.client.post("/v1/files", data=_upload(content), headers={"Authorization": f"Bearer {api.key}"})
    finally:
        api.close()
        bound.close()
        disk.unmount()

    assert away.status_code == 503, away.text
    assert away.json is not None
    assert away.json["error"]["type"] == "server_error"
    assert 1 <= int(away.headers["Retry-After"]) <= 20
    assert left == before
    assert listed is not None
    assert listed["data"] == []
    assert (stored.status_code, stored.json["bytes"]) == (200, len(content))  # type: ignore[index]  # it has a body


def _upload(content: bytes) -> dict[str, Any]:
    return {"purpose": "user_data", "file": (io.BytesIO(content), "a.bin")}


def test_projects_organizations_and_refusals_as_the_client_knows_them(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch):
    key = sqlite_api.make_key(Role.USER, "alpha")
    sqlite_api.make_key(Role.USER, "beta")
    client, connection = client_of(sqlite_api, monkeypatch, api_key=key, project="alpha", organization="acme")
    wrong, _ = client_of(sqlite_api, monkeypatch, api_key="ty_wrong")

    answer = client.files.with_raw_response.create(file=named(), purpose="fine-tune")
    with pytest.raises(openai.NotFoundError):
        client.with_options(project="beta").files.list()
    with pytest.raises(openai.InternalServerError) as not_built:
        client.moderations.create(input="x")
    with pytest.raises(openai.AuthenticationError) as refused:
        wrong.models.list()

    assert answer.headers["openai-organization"] == "acme"
    assert int(answer.headers["openai-processing-ms"]) >= 0
    assert answer.headers["x-request-id"].startswith("req_")
    assert (not_built.value.status_code, not_built.value.code) == (501, "not_built")
    assert len([sent for sent in connection.sent if "moderations" in sent.url.path]) == 1
    assert refused.value.code == "invalid_api_key"
    assert [model.id for model in client.models.list()] == []
    with pytest.raises(openai.NotFoundError) as unknown:
        client.models.retrieve("ft:a/b:alpha::12345678")
    assert unknown.value.code == "model_not_found"
