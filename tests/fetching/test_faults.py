"""Killed child processes, full disks, hanging servers: no partial file stays, and the error is reported."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.fetching.web_server import file
from tests.systems.system import wait_for
from workers.attempt_failed import AttemptFailed
from workers.fetching.child.client import run_child
from workers.prepare.inputs.resolve_inputs import DataRequest, find_data

LINES = b'{"text": "hello"}\n'


def half(handler):
    """The first half of a file, then silence."""
    handler.head(200, Content_Length="200000")
    handler.wfile.write(b"x" * 100000)
    handler.server.owner.closing.wait()


def children():
    found = []
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # also one that has ended and was not waited for yet
            if "workers.fetching" in each.cmdline():
                found.append(each)
    return found


def in_background(library, location):
    """Starts to fetch; the list it returns gets the outcome."""
    outcome: list[object] = []

    def run():
        try:
            outcome.append(find_data(library, DataRequest(location=location)))
        except AttemptFailed as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def parts(tmp_path):
    return list((tmp_path / "data/cache/data/parts").glob("*/data"))


def test_killed_in_the_middle_of_a_download_leaves_nothing_half(web, make_library, tmp_path, objects):
    web.answers["/a.jsonl"] = half
    library = make_library()
    thread, outcome = in_background(library, web.url("/a.jsonl"))
    wait_for(
        lambda: [part for part in parts(tmp_path) if part.stat().st_size == 100000], seconds=20, what="half of the file"
    )
    for child in children():
        child.send_signal(signal.SIGKILL)
    thread.join()
    web.answers["/a.jsonl"] = file(LINES)

    data = find_data(library, DataRequest(location=web.url("/a.jsonl")))

    assert isinstance(outcome[0], AttemptFailed)
    assert outcome[0].error_type == "STORAGE_ERROR"
    assert data.path.read_bytes() == LINES
    assert len(objects()) == 1
    assert parts(tmp_path) == []


@pytest.mark.long
def test_silent_download_is_given_up(web, make_library):
    web.answers["/a.jsonl"] = half

    with pytest.raises(AttemptFailed, match="nothing") as refused:
        find_data(make_library(stalled_seconds=1.0), DataRequest(location=web.url("/a.jsonl")))

    assert refused.value.error_type == "STORAGE_ERROR"
    assert children() == []


@pytest.mark.long
def test_two_attempts_download_once(web, make_library):
    began = threading.Event()

    def slow(handler):
        began.set()
        time.sleep(0.5)  # so that the other one asks while this download lasts
        file(LINES, ETag='"1"')(handler)

    web.answers["/a.jsonl"] = slow
    url = web.url("/a.jsonl")
    first, outcome = in_background(make_library(), url)
    began.wait()

    again = find_data(make_library(), DataRequest(location=url))

    first.join()
    assert again.path.samefile(outcome[0].path)
    assert [("if-none-match" in seen.headers) for seen in web.seen] == [False, True]


def test_child_dies_with_its_parent(web, tmp_path):
    web.answers["/a.jsonl"] = half
    program = (
        "import sys; from pathlib import Path; from app.domain.spec.locations.paths import ReadingRules\n"
        "from config.fetching import FetchSettings; from workers.prepare.inputs.input_library import Library\n"
        "from workers.prepare.inputs.resolve_inputs import DataRequest, find_data\n"
        "library = Library(rules=ReadingRules(roots=()), cache_dir=Path(sys.argv[1]), project='p',\n"
        "    project_of_job=lambda _: None, fetch=FetchSettings(allow=('127.0.0.1',)))\n"
        "find_data(library, DataRequest(location=sys.argv[2]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), web.url("/a.jsonl")])
    wait_for(lambda: web.seen, seconds=20, what="the request")
    child = psutil.Process(parent.pid).children()[0]

    parent.kill()
    parent.wait()

    wait_for(
        lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, seconds=20, what="the child's end"
    )


def test_secrets_stand_neither_in_the_command_nor_in_the_environment(web, make_library):
    web.answers["/drive/s/a.jsonl"] = half
    library = make_library(
        scaidrive_url=web.url("/drive"), secrets={"forwarded.scaidrive": "hunter2"}, s3_secret="hunter3"
    )
    thread, _ = in_background(library, "scaidrive://s/a.jsonl")
    wait_for(lambda: web.seen, seconds=20, what="the request")
    child = children()[0]
    seen = " ".join(child.cmdline()) + Path(f"/proc/{child.pid}/environ").read_text()
    dumpable = Path(f"/proc/{child.pid}/environ").stat().st_uid == 0
    child.kill()
    thread.join()

    assert "hunter" not in seen
    assert dumpable


def test_full_disk_is_trouble_and_leaves_nothing(web, make_library, tmp_path, objects):
    """As much as a limit on the size of files is like a full disk."""
    web.answers["/a.jsonl"] = file(bytes(1 << 20))
    library = make_library()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, before[1]))
    try:
        with pytest.raises(AttemptFailed, match="full") as refused:
            find_data(library, DataRequest(location=web.url("/a.jsonl")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert refused.value.error_type == "STORAGE_ERROR"
    assert objects() == []
    assert parts(tmp_path) == []


def test_cache_that_cannot_be_written_is_named(web, make_library, tmp_path):
    web.answers["/a.jsonl"] = file(LINES)
    library = make_library()
    library.link_directory  # noqa: B018 – made when it is first asked for
    (tmp_path / "data/cache/data/index").write_text("no directory")

    with pytest.raises(AttemptFailed, match="node's cache failed: ") as refused:
        find_data(library, DataRequest(location=web.url("/a.jsonl")))

    assert refused.value.error_type == "STORAGE_ERROR"


def test_time_limit_holds_for_the_whole_source(web, make_library):
    def drip(handler):
        handler.head(200, Content_Length="1000")
        while not handler.server.owner.closing.wait(0.05):
            handler.wfile.write(b"x")

    web.answers["/a.jsonl"] = drip

    with pytest.raises(AttemptFailed, match="TRAINYARD_FETCH_MAX_SECONDS"):
        find_data(make_library(max_seconds=1.0), DataRequest(location=web.url("/a.jsonl")))


def test_child_without_an_answer_is_trouble(tmp_path, monkeypatch, capfd):
    (tmp_path / "failing.py").write_text(
        "from workers.fetching.child.server import serve\n"
        "def work(request, heart):\n    raise ValueError('https://u:pw@h/x?sig=abc ' + request['secrets']['t'])\n"
        "serve(work)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path.cwd()}")

    with pytest.raises(AttemptFailed, match="ended with") as refused:
        run_child("failing", {"secrets": {"t": "hunter2"}}, what="data source x", stalled_seconds=10)

    said = capfd.readouterr().err
    assert refused.value.error_type == "STORAGE_ERROR"
    assert "ValueError" in said
    assert not any(secret in said for secret in ("hunter2", "pw", "abc"))


def test_request_reaches_the_child_however_large(tmp_path, monkeypatch):
    (tmp_path / "echoing.py").write_text(
        "from workers.fetching.child.server import serve\nserve(lambda request, heart: request['items'])\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path.cwd()}")
    items = ["x" * 1000] * 1000

    assert run_child("echoing", {"items": items}, what="x", stalled_seconds=10) == json.loads(json.dumps(items))
