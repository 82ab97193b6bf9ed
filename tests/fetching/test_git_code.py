"""Code of a Git repository: one commit, from a real server over HTTPS, unpacked for an attempt."""

import hashlib
import os
import socket
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.spec.locations.code import git_commit
from app.domain.spec.model import JobDocument
from tests.builders.factories import make_document
from tests.doubles.git_server import GitServer, running_git_server
from workers.attempt_failed import AttemptFailed
from workers.fetching.code import git
from workers.fetching.code.connect_proxy import ConnectProxy
from workers.fetching.failures import FetchRefused, NotThere, Trouble
from workers.fetching.fetch import TooLargeHere
from workers.prepare.code_preflight import inspect_code
from workers.prepare.inputs.resolve_inputs import find_code

FILES = {
    "train.py": "print('hello')\n",
    "tools/run.sh": "#!/bin/sh\n",
    "tools/secret.txt": "kept out of archives\n",
    ".gitattributes": "secret.txt export-ignore\n*.py filter=evil\n",
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    with running_git_server(tmp_path) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        yield server


@pytest.mark.long
def test_commit_is_unpacked_and_kept(server: GitServer, make_library: Any) -> None:
    commit = server.commit("team/code", FILES)
    location = f"{server.url('team/code')}@{commit}"

    first = find_code(make_library(), location)
    asked = len(server.requests)
    again = find_code(make_library(), location)

    for code in (first, again):
        found = {str(path.relative_to(code)): path.read_text() for path in code.rglob("*") if path.is_file()}
        assert found == FILES
        assert os.access(code / "tools/run.sh", os.X_OK)
        assert not os.access(code / "train.py", os.X_OK)
    assert asked > 0
    assert len(server.requests) == asked, "the second time nothing was asked"


def test_older_commit_and_part_of_it(server: GitServer, make_library: Any) -> None:
    old = server.commit("code", FILES)
    server.commit("code", {"tools/run.sh": "#!/bin/sh\necho new\n"})

    code = find_code(make_library(), f"{server.url('code')}@{old}#subdirectory=tools")

    assert sorted(path.name for path in code.iterdir()) == ["run.sh", "secret.txt"]
    assert (code / "run.sh").read_text() == FILES["tools/run.sh"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"commit": "0" * 40}, "the repository has no commit 0000"),
        ({"name": "missing"}, "does not exist, or is not public; put what opens a private one"),
        ({"part": "#subdirectory=nowhere"}, "has no directory nowhere"),
    ],
    ids=["commit", "repository", "part"],
)
def test_what_is_not_there(server: GitServer, make_library: Any, change: dict[str, str], message: str) -> None:
    commit = server.commit("code", FILES)
    location = f"{server.url(change.get('name', 'code'))}@{change.get('commit', commit)}{change.get('part', '')}"

    with pytest.raises(AttemptFailed, match=message) as failed:
        find_code(make_library(), location)

    assert failed.value.error_type == "INVALID_CONFIG"


def test_private_repository_asks_nobody(server: GitServer, make_library: Any) -> None:
    commit = server.commit("code", FILES)
    server.private = True

    with pytest.raises(AttemptFailed, match="is not public"):
        find_code(make_library(), f"{server.url('code')}@{commit}")


def test_private_address_is_not_connected(server: GitServer, make_library: Any) -> None:
    commit = server.commit("code", FILES)

    with pytest.raises(AttemptFailed, match="TRAINYARD_FETCH_ALLOW"):
        find_code(make_library(allow=()), f"{server.url('code')}@{commit}")

    assert server.requests == []


def test_unknown_certificate_is_refused(server: GitServer, make_library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = server.commit("code", FILES)
    monkeypatch.delenv("SSL_CERT_FILE")

    with pytest.raises(AttemptFailed, match=r"(?i)certificate") as failed:
        find_code(make_library(), f"{server.url('code')}@{commit}")

    assert failed.value.error_type == "HUB_UNREACHABLE"


def test_large_repository_and_large_code(server: GitServer, make_library: Any) -> None:
    commit = server.commit("code", {"data.bin": os.urandom(300_000).hex()})

    with pytest.raises(AttemptFailed, match="TRAINYARD_FETCH_MAX_BYTES"):
        find_code(make_library(max_bytes=100_000), f"{server.url('code')}@{commit}")


def test_configuration_of_the_machine_has_no_effect(
    server: GitServer, make_library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, marker = server.commit("code", FILES), tmp_path / "ran"
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name, value in {
        "filter.evil.smudge": f"touch {marker}; cat",
        "credential.helper": f"!touch {marker}",
        f"url.file://{server.folder}/.insteadOf": f"https://127.0.0.1:{server.port}/",
    }.items():
        subprocess.run(["git", "config", "--global", name, value], check=True, env={**os.environ, "HOME": str(home)})

    code = find_code(make_library(), f"{server.url('code')}@{commit}")

    assert (code / "train.py").read_text() == FILES["train.py"]
    assert server.requests
    assert not marker.exists()


def test_node_without_git_says_so(server: GitServer, make_library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = server.commit("code", FILES)
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(AttemptFailed, match="git is not installed on this node"):
        find_code(make_library(), f"{server.url('code')}@{commit}")


def git_of(folder: Path, *arguments: str, content: str = "") -> str:
    return subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        input=content,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.mark.parametrize("leaf", ["blob", "tree"])
def test_few_objects_of_any_number_of_files_are_refused_at_once(
    server: GitServer, make_library: Any, leaf: str
) -> None:
    """10 objects: trees of 10 equal trees, to 100 million files or empty directories."""
    server.commit("code", FILES)
    folder = server.folder / "code.git"
    blob, empty = git_of(folder, "hash-object", "-w", "--stdin"), git_of(folder, "mktree")
    last = f"100644 blob {blob}" if leaf == "blob" else f"040000 tree {empty}"
    tree = git_of(folder, "mktree", content="".join(f"{last}\tf{i}\n" for i in range(10)))
    for _ in range(7):
        tree = git_of(folder, "mktree", content="".join(f"040000 tree {tree}\td{i}\n" for i in range(10)))
    commit = git_of(folder, "commit-tree", tree, "-m", "x")
    git_of(folder, "update-ref", "refs/heads/bomb", commit)
    began = time.monotonic()

    with pytest.raises(AttemptFailed, match="more than 20,000 files and directories") as failed:
        find_code(make_library(), f"{server.url('code')}@{commit}")

    assert failed.value.error_type == "INVALID_CONFIG"
    assert time.monotonic() - began < 20


def test_large_tree_is_refused_before_it_is_archived(server: GitServer, make_library: Any) -> None:
    server.commit("code", FILES)
    folder = server.folder / "code.git"
    blob = git_of(folder, "hash-object", "-w", "--stdin", content="0" * (33 << 20))
    tree = git_of(folder, "mktree", content="".join(f"100644 blob {blob}\tf{i}\n" for i in range(8)))
    commit = git_of(folder, "commit-tree", tree, "-m", "x")
    git_of(folder, "update-ref", "refs/heads/large", commit)

    with pytest.raises(AttemptFailed, match="more than 268,435,456 bytes of files") as failed:
        find_code(make_library(), f"{server.url('code')}@{commit}")

    assert failed.value.error_type == "INVALID_CONFIG"


def test_preflight_looks_at_no_more_than_it_may(server: GitServer, make_library: Any) -> None:
    commit = server.commit("code", {"zeros": "0" * 100_000})

    with pytest.raises(TooLargeHere, match="more than 50,000 bytes"):
        find_code(make_library(fetch_bytes=50_000), f"{server.url('code')}@{commit}")


def test_small_pack_of_a_large_object_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_MEMORY_BYTES", 100 << 20)
    pack = tmp_path / "bomb.pack"
    pack.write_bytes(delta_bomb(copies=20))
    limited = git._Git("/usr/bin/git", tmp_path, "", 1 << 30)
    assert limited.run("init", "--quiet", "--bare", str(tmp_path / "bare")) == ""

    said = limited.run("-C", str(tmp_path / "bare"), "index-pack", str(pack))

    assert pack.stat().st_size < 20_000
    wanted = git_commit(f"git+https://example.org/a.git@{'0' * 40}", field="")
    failure = git._why(said, wanted, 1, refused=False, is_ours=True)
    assert isinstance(failure, FetchRefused), said
    assert "more memory, time or room" in failure.message


def delta_bomb(*, copies: int) -> bytes:
    """A pack with 16 MiB of zeros, and an object of so many copies of them."""

    def number(value: int, first: int = 7, kind: int = 0) -> bytes:
        found, value = bytearray([kind << first | value & (1 << first) - 1]), value >> first
        while value:
            found[-1] |= 0x80
            found.append(value & 0x7F)
            value >>= 7
        return bytes(found)

    base = bytes(0xFFFFFF)
    name = hashlib.sha1(b"blob %d\0" % len(base) + base, usedforsecurity=False).digest()
    delta = number(len(base)) + number(copies * len(base)) + b"\xf0\xff\xff\xff" * copies
    pack = b"PACK" + struct.pack(">II", 2, 2) + number(len(base), 4, 3) + zlib.compress(base, 9)
    pack += number(len(delta), 4, 7) + name + zlib.compress(delta, 9)
    return pack + hashlib.sha1(pack, usedforsecurity=False).digest()


def test_command_that_takes_too_long_ends_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "_SECONDS", 0.5)
    limited = git._Git("/usr/bin/git", tmp_path, "", 1 << 30)
    began = time.monotonic()

    said = limited.run("-c", "alias.wait=!sleep 60", "wait")

    assert said == "it took longer than 0.5 s"
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(("status", "kind"), [(410, NotThere), (429, Trouble), (500, Trouble)])
def test_answers_of_servers(status: int, kind: type[Exception]) -> None:
    wanted = git_commit(f"git+https://example.org/a.git@{'0' * 40}", field="")
    said = f"fatal: unable to access 'https://example.org/a.git/': The requested URL returned error: {status}"

    assert type(git._why(said, wanted, 1, refused=False, is_ours=True)) is kind


def test_machine_with_a_proxy_says_that_git_does_not_use_it(make_library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")

    with pytest.raises(
        AttemptFailed, match=r"does not use the proxy of.*TRAINYARD_FETCH_PROXY, or upload.*submit --code"
    ) as failed:
        find_code(make_library(), f"git+https://127.0.0.1:1/a.git@{'0' * 40}")

    assert failed.value.error_type == "HUB_UNREACHABLE"


def test_repository_that_does_not_answer(make_library: Any) -> None:
    with pytest.raises(AttemptFailed, match="the repository does not answer, or the connection to it broke") as failed:
        find_code(make_library(), f"git+https://127.0.0.1:1/a.git@{'0' * 40}")

    assert failed.value.error_type == "HUB_UNREACHABLE"


@pytest.mark.long
@pytest.mark.parametrize(
    ("framework", "packages", "message"),
    [
        ({"custom_script_path": "train.py"}, None, ""),
        ({"custom_script_path": "tools"}, None, "custom script tools does not lie below"),
        ({"custom_script_path": "tarin.py"}, None, "custom script tarin.py does not lie below"),
        (
            {"custom_command": ["true"]},
            {"requirements_file": "requirements.txt"},
            "requirements.txt' is not in the code",
        ),
    ],
    ids=["present", "directory", "missing", "requirements"],
)
def test_preflight_finds_what_the_commit_lacks(
    server: GitServer, make_library: Any, framework: dict[str, Any], packages: dict[str, Any] | None, message: str
) -> None:
    location = f"{server.url('code')}@{server.commit('code', FILES)}"
    framework = {"type": "CUSTOM", "custom_code_dir": location, **framework}
    training = {
        "framework": framework,
        "base_model": {"model_id": "none"},
        **({"packages": packages} if packages else {}),
    }
    document = JobDocument.from_json(make_document(training_config=training, data_config={"sources": []}))

    if not message:
        assert inspect_code(make_library(), document) == {"code": {"location": location}}
        return
    with pytest.raises(AttemptFailed, match=message) as failed:
        inspect_code(make_library(), document)

    assert failed.value.error_type == "INVALID_CONFIG"


def test_proxy_serves_only_those_who_know_its_password(server: GitServer) -> None:
    with ConnectProxy(("127.0.0.1",)) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as other:
            other.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % server.port)
            assert other.recv(100).startswith(b"HTTP/1.1 407 ")
