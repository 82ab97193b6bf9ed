"""From what a job names to what lies on the machine, and never to what it may not read."""

import json
import os
import socket
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from app.domain.locations import ReadingRules
from workers.failures import AttemptFailed
from workers.resolving import Library, find_data, find_model, find_script


@pytest.fixture
def library(tmp_path):
    """A project that may read ``mine`` and the stored files of its own jobs."""
    data_dir, mine = tmp_path / "data", tmp_path / "mine"
    for directory in (data_dir / "files", data_dir / "run", mine / "model", mine / "empty"):
        directory.mkdir(parents=True)
    (data_dir / "secret.key").write_text("hunter2")
    (mine / "model" / "config.json").write_text("{}")
    (mine / "data.jsonl").write_text("{}\n")
    (mine / "nothing.jsonl").touch()
    (mine / "train.py").write_text("pass\n")
    rules = ReadingRules(roots=(str(data_dir / "files"), str(mine)), data_dir=str(data_dir), real_path=os.path.realpath)
    return Library(
        rules=rules, cache_dir=tmp_path / "cache", project="ours", project_of_job={"job-ours": "ours", "job-x": "x"}.get
    )


@pytest.fixture
def mine(tmp_path, library):
    return tmp_path / "mine"


def refusal(function, *arguments):
    with pytest.raises(AttemptFailed) as refused:
        function(*arguments)
    return refused.value


@pytest.mark.parametrize("form", ["{mine}/model", "file://{mine}/model", "model", "model/"])
def test_local_model_is_found(library, mine, form):
    assert find_model(library, form.format(mine=mine)).path == mine / "model"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("{mine}/gone", "does not exist"),
        ("{mine}/empty", "empty"),
        ("{mine}/data.jsonl", "not a directory"),
        ("/etc", "TRAINYARD_STORAGE_ROOTS"),
        ("{mine}/../data", "TRAINYARD_STORAGE_ROOTS"),
        ("s3://bucket/model", "not supported"),
    ],
)
def test_unusable_model_is_refused(library, mine, model, said):
    refused = refusal(find_model, library, model.format(mine=mine))

    assert refused.error_type == "MODEL_NOT_FOUND"
    assert said in refused.message


def test_local_model_has_no_revisions(library, mine):
    refused = refusal(find_model, library, f"{mine}/model", "main")

    assert refused.error_type == "INVALID_CONFIG"
    assert "no revisions" in refused.message


def test_model_in_a_hub_cache_brings_the_files_that_it_links_to(library, mine):
    snapshot = mine / "models--org--tiny" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")

    assert find_model(library, str(snapshot)).visible == mine / "models--org--tiny"


@pytest.mark.parametrize(
    ("location", "error_type"),
    [
        ("{mine}/gone.jsonl", "DATA_NOT_FOUND"),
        ("{mine}/nothing.jsonl", "DATA_INVALID"),
        ("{mine}/model", "DATA_INVALID"),
        ("{mine}/../data/secret.key", "DATA_NOT_FOUND"),
        ("/proc/self/environ", "DATA_NOT_FOUND"),
    ],
)
def test_unusable_data_is_refused(library, mine, location, error_type):
    assert refusal(find_data, library, location.format(mine=mine)).error_type == error_type


def test_data_is_found(library, mine):
    assert find_data(library, "data.jsonl") == mine / "data.jsonl"


def test_custom_jobs_may_name_a_directory_as_data(library, mine):
    assert find_data(library, "model", directories=True) == mine / "model"


def test_pipe_is_no_data(library, mine):
    os.mkfifo(mine / "pipe")

    assert refusal(find_data, library, "pipe").error_type == "DATA_INVALID"


def test_link_out_of_the_roots_is_refused(library, mine, tmp_path):
    (mine / "link").symlink_to(tmp_path / "data" / "secret.key")

    assert refusal(find_data, library, "link").error_type == "DATA_NOT_FOUND"


def test_stored_files_of_another_project_are_refused(library, mine, tmp_path):
    for job in ("job-ours", "job-x"):
        stored = tmp_path / "data/files/jobs" / job / "artifacts"
        stored.mkdir(parents=True)
        (stored / "config.json").write_text("{}")
    (mine / "link").symlink_to(tmp_path / "data/files/jobs/job-x/artifacts")

    assert find_model(library, str(tmp_path / "data/files/jobs/job-ours/artifacts"))
    assert refusal(find_model, library, str(mine / "link")).error_type == "MODEL_NOT_FOUND"


def test_refusal_does_not_tell_what_exists_outside(library):
    there, not_there = (refusal(find_data, library, path).message for path in ("/etc/passwd", "/etc/gone"))

    assert there.replace("passwd", "gone") == not_there


def test_missing_script_is_a_bad_configuration(library, mine):
    assert find_script(library, "train.py") == mine / "train.py"
    assert refusal(find_script, library, "gone.py").error_type == "INVALID_CONFIG"


FILES = {"config.json": b'{"model_type": "llama"}', "model.safetensors": b"weights", "model.onnx": b"not needed"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """As much of a model hub as a download needs: one model, ``org/tiny``."""

    def do_GET(self):
        parts = self.path.partition("?")[0].strip("/").split("/")
        if self.path.startswith("/api/models/org/tiny/revision/main"):
            self._json({"id": "org/tiny", "sha": COMMIT, "siblings": [{"rfilename": name} for name in FILES]})
        elif self.path.startswith("/api/models/org/tiny/tree/"):
            self._json([{"type": "file", "path": n, "size": len(d), "oid": "0" * 40} for n, d in FILES.items()])
        elif parts[:3] == ["org", "tiny", "resolve"] and parts[4] in FILES:
            self._send(200, FILES[parts[4]], ETag=f'"{parts[4]}"', **{"X-Repo-Commit": COMMIT})
        elif self.path.startswith("/api/models/org/tiny"):
            self._send(404, b"{}", **{"X-Error-Code": "RevisionNotFound"})
        else:
            self._send(404, b"{}", **{"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET  # noqa: N815 – the name is http.server's

    def _json(self, document):
        self._send(200, json.dumps(document).encode(), **{"Content-Type": "application/json"})

    def _send(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    yield
    server.shutdown()
    server.server_close()
    thread.join()


def test_hub_id_is_downloaded_into_the_cache(library, hub):
    model = find_model(library, "org/tiny")

    assert sorted(path.name for path in model.path.iterdir()) == ["config.json", "model.safetensors"]
    assert (model.path / "model.safetensors").read_bytes() == b"weights"
    assert (model.path / "model.safetensors").resolve().is_relative_to(model.visible)


@pytest.mark.parametrize(("model_id", "revision"), [("org/unknown", None), ("org/tiny", "v9")])
def test_what_the_hub_does_not_have_is_said(library, hub, model_id, revision):
    refused = refusal(find_model, library, model_id, revision)

    assert refused.error_type == "MODEL_NOT_FOUND"
    assert model_id in refused.message


def test_unreachable_hub_may_be_tried_again(library, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")

    refused = refusal(find_model, library, "org/tiny")

    assert refused.error_type == "STORAGE_ERROR"
    assert "http://127.0.0.1:1" in refused.message


@pytest.fixture
def silent_hub(monkeypatch):
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "60")
        monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "60")
        yield


def test_download_that_does_not_grow_is_given_up(library, silent_hub):
    refused = refusal(find_model, replace(library, stalled_seconds=1.0), "org/tiny")

    assert refused.error_type == "STORAGE_ERROR"
    assert "nothing has arrived" in refused.message
