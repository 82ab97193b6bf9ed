"""Uploaded files on a node: found in the storage, compared with what was uploaded, and named by their content."""

import gzip
import hashlib
import io
import os
import tarfile
from dataclasses import replace

import pytest

from app.domain.spec.locations.paths import ReadingRules
from app.storage.object_keys import user_file_key
from app.storage.storage import Storage
from config.fetching import CacheSettings
from workers.attempt_failed import AttemptFailed
from workers.fetching.child.client import run_child
from workers.fetching.fetch import TooLargeHere
from workers.prepare.inputs import directories
from workers.prepare.inputs.input_library import JobInputs, Library, UploadedFile
from workers.prepare.inputs.resolve_inputs import DataRequest, find_data
from workers.prepare.preview import PreviewLibrary, all_local

LINES = b'{"text": "hello"}\n'
FILE_ID = "file-01935b5f-7c00-7abc-8def-0123456789ab"
KEY = user_file_key("ours", FILE_ID)


@pytest.fixture(params=["file", "memory"])
def storage(request, tmp_path):
    url = f"file://{tmp_path}/stored" if request.param == "file" else f"memory://{tmp_path.name}"
    return Storage(url)


@pytest.fixture
def found(storage, tmp_path):
    """The uploaded file as a node finds it, when it was stored with this content."""
    libraries = []

    def resolved(
        content=LINES, *, filename="train.jsonl", purpose="fine-tune", fetch_bytes=None, cache_bytes=1 << 30, **recorded
    ):
        if content is not None:
            storage.write(KEY, content)
        file = UploadedFile(
            **{"size_bytes": len(content or b""), "sha256": hashlib.sha256(content or b"").hexdigest(), **recorded},
            id=FILE_ID,
            filename=filename,
            purpose=purpose,
            storage=storage,
            key=KEY,
        )
        library = Library(
            rules=ReadingRules(roots=(str(tmp_path),), real_path=os.path.realpath),
            cache_dir=tmp_path / "cache",
            project="ours",
            project_of_job=lambda _: None,
            uploads={FILE_ID: file}.get,
            cache=CacheSettings(max_bytes=cache_bytes),
        )
        library = library if fetch_bytes is None else PreviewLibrary.of(library, fetch_bytes=fetch_bytes)
        libraries.append(library)
        return find_data(library, DataRequest(location=FILE_ID))

    yield resolved
    for library in libraries:
        library.close()


def test_content_is_read_by_the_name_of_the_file(found, storage, tmp_path):
    data, again = found(), found()

    (file,) = data.files
    assert data.path.read_bytes() == again.path.read_bytes() == LINES
    assert (data.location, file.name, file.size_bytes) == (FILE_ID, "train.jsonl", len(LINES))
    assert file.sha256 == hashlib.sha256(LINES).hexdigest()
    in_place = storage.local_path(KEY)
    assert data.visible == ((data.path.parent,) if in_place is None else (data.path.parent, in_place))
    assert (tmp_path / "cache/data/objects").exists() == (in_place is None)


def test_preflight_does_not_take_it_for_a_file_of_the_coordinator(found, tmp_path):
    data = found(fetch_bytes=100)

    library = Library(rules=ReadingRules(roots=()), cache_dir=tmp_path / "cache", project="ours", project_of_job=str)
    sources = JobInputs(model=None, tokenizer=None, data=(data,), script=None)
    assert not all_local(sources, library)


@pytest.mark.parametrize(
    ("filename", "purpose", "content", "name"),
    [
        ("train.jsonl", "fine-tune", gzip.compress(LINES, mtime=0), "train.jsonl.gz"),
        ("train.jsonl.zst", "fine-tune", b"\x28\xb5\x2f\xfd", "train.jsonl.zst"),
        ("train.jsonl.gz", "fine-tune", LINES, "train.jsonl"),
        ("train.txt", "fine-tune", LINES, "train.txt.jsonl"),
        ("train", "fine-tune", LINES, "train.jsonl"),
        ("table.csv", "user_data", LINES, "table.csv"),
        ("../../etc/pass\nwd", "user_data", LINES, "pass_wd"),
        ("..", "user_data", LINES, FILE_ID),
        ("é" * 255, "fine-tune", LINES, "é" * 100 + ".jsonl"),
    ],
)
@pytest.mark.parametrize("storage", ["file"], indirect=True)
def test_name_says_what_the_content_is(found, filename, purpose, content, name):
    assert found(content, filename=filename, purpose=purpose).path.name == name


@pytest.mark.parametrize(
    ("recorded", "error_type", "message"),
    [
        ({"content": None}, "DATA_NOT_FOUND", "upload it again"),
        ({"size_bytes": 5}, "DATA_INVALID", "is not what was uploaded"),
        ({"sha256": "0" * 64}, "DATA_INVALID", "is not what was uploaded"),
    ],
)
def test_content_that_is_gone_or_another_one_fails_the_attempt(found, recorded, error_type, message):
    with pytest.raises(AttemptFailed, match=message) as failed:
        found(**recorded)

    assert failed.value.error_type == error_type


@pytest.mark.parametrize("storage", ["memory"], indirect=True)
def test_preflight_fetches_no_more_than_it_may(found):
    with pytest.raises(TooLargeHere, match="TRAINYARD_PREFLIGHT_FETCH_BYTES"):
        found(fetch_bytes=len(LINES) - 1)


def test_file_of_another_project_is_not_there(tmp_path):
    library = Library(rules=ReadingRules(roots=()), cache_dir=tmp_path, project="other", project_of_job=str)

    with pytest.raises(AttemptFailed, match="the project other has no such file"):
        find_data(replace(library, uploads=lambda _: None), DataRequest(location=FILE_ID))


def packed(size_bytes):
    """A packed directory with one file of zeros."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        info = tarfile.TarInfo("a.jsonl")
        info.size = size_bytes
        tar.addfile(info, io.BytesIO(bytes(size_bytes)))
    return stream.getvalue()


def test_preflight_unpacks_no_more_than_it_may_fetch(found):
    content = packed(3_000_000)
    assert len(content) < 10_000

    with pytest.raises(TooLargeHere, match="more than 10,000 bytes, the most allowed"):
        found(content, filename="d.tar.gz", purpose="directory", fetch_bytes=10_000)


def test_bad_directory_is_the_jobs_fault_in_a_preflight_too(found):
    with pytest.raises(AttemptFailed, match="no archive") as failed:
        found(b"no archive", filename="d.tar.gz", purpose="directory", fetch_bytes=10_000)

    assert (failed.value.error_type, isinstance(failed.value, TooLargeHere)) == ("DATA_INVALID", False)


@pytest.fixture
def full_once(monkeypatch):
    """The first unpacking finds a full disk; gives the requests."""
    requests = []

    def run(module, request, **options):
        requests.append(request)
        if len(requests) == 1:
            return {"failure": "it can't be unpacked: No space left on device", "error_type": "DISK_FULL"}
        return run_child(module, request, **options)

    monkeypatch.setattr(directories, "run_child", run)
    return requests


def test_full_disk_gets_room_and_is_tried_again(found, full_once):
    data = found(packed(1000), filename="d.tar.gz", purpose="directory")

    assert [file.size_bytes for file in data.files] == [1000]
    assert len({request["target"] for request in full_once}) == 2


def test_disk_that_stays_full_may_be_free_later(found, full_once):
    with pytest.raises(AttemptFailed, match="TRAINYARD_CACHE_MAX_BYTES") as failed:
        found(packed(1000), filename="d.tar.gz", purpose="directory", cache_bytes=1 << 20)

    assert (failed.value.error_type, len(full_once)) == ("DISK_FULL", 1)
