"""Code of a private Git repository: what opens it goes to its server alone, and is shown nowhere."""

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.git_server import GitServer, running_git_server
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.resolve_inputs import find_code

TOKEN = "glpat-0123456789abcdef"
AT = "training_config.framework.custom_code_credentials"
FILES = {"train.py": "print('hello')\n"}
LOGINS = {
    "token": ({"token": TOKEN}, f"x-access-token:{TOKEN}"),
    "user": ({"username": "me", "password": "a:ä b"}, "me:a:ä b"),
}


def secrets(login: dict[str, str]) -> dict[str, str]:
    return {f"{AT}.{name}": value for name, value in login.items()}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    (tmp_path / "server").mkdir()
    with running_git_server(tmp_path / "server") as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        server.private, server.login = True, LOGINS["token"][1]
        yield server


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the arguments that git is started with."""
    directory, found = tmp_path / "bin", tmp_path / "arguments"
    directory.mkdir()
    wrapper = directory / "git"
    wrapper.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {found}\nexec {shutil.which("git")} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    return found


@pytest.mark.parametrize("kind", LOGINS)
def test_login_opens_the_repository_and_is_no_argument(
    server: GitServer, make_library: Any, arguments: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    login, server.login = LOGINS[kind]
    location = f"{server.url('team/code')}@{server.commit('team/code', FILES)}"

    code = find_code(make_library(secrets=secrets(login)), location)

    sent = f"Basic {base64.b64encode(server.login.encode()).decode()}"
    assert (code / "train.py").read_text() == FILES["train.py"]
    assert set(server.received) == {sent}
    shown = arguments.read_text() + "".join(capfd.readouterr())
    assert "fetch" in shown
    assert not [each for each in (*login.values(), sent) if each in shown]
    assert not list(code.parent.rglob("config")), "no configuration of git is left"


@pytest.mark.parametrize("before", ["", "x" * 250], ids=["whole", "truncated"])
def test_login_that_a_server_sends_back_is_in_no_message(server: GitServer, make_library: Any, before: str) -> None:
    basic = base64.b64encode(server.login.encode()).decode()
    location = f"{server.url('code')}@{server.commit('code', FILES)}"
    server.says = f"{before} no access for {TOKEN}, Basic {basic}"

    with pytest.raises(AttemptFailed, match="no access for ") as failed:
        find_code(make_library(secrets=secrets({"token": TOKEN})), location)

    assert "no access for ***" in failed.value.message
    assert not [each for each in (TOKEN[:8], basic[:8]) if each in failed.value.message]


@pytest.mark.long
def test_code_that_a_login_has_opened_is_not_given_to_those_without(server: GitServer, make_library: Any) -> None:
    location = f"{server.url('code')}@{server.commit('code', FILES)}"
    find_code(make_library(secrets=secrets({"token": TOKEN})), location)
    asked = len(server.requests)

    find_code(make_library(secrets=secrets({"token": TOKEN})), location)
    assert len(server.requests) == asked
    for other, message in (
        ({}, "is not public; put what opens"),
        ({"token": "x"}, "custom_code_credentials don't open"),
    ):
        with pytest.raises(AttemptFailed, match=message) as failed:
            find_code(make_library(secrets=secrets(other)), location)
        assert failed.value.error_type == "INVALID_CONFIG"


def test_login_stays_with_the_server_that_redirects(server: GitServer, make_library: Any, tmp_path: Path) -> None:
    commit = server.commit("code", FILES)
    (tmp_path / "other").mkdir()
    with running_git_server(tmp_path / "other") as other:
        other.commit("code", FILES)
        server.leads_to = f"https://127.0.0.1:{other.port}"

        with pytest.raises(AttemptFailed, match="leads elsewhere, where custom_code_credentials are not sent"):
            find_code(make_library(secrets=secrets({"token": TOKEN})), f"{server.url('code')}@{commit}")

        assert server.requests
        assert other.requests == []


def test_submodules_ask_no_other_server(server: GitServer, make_library: Any, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with running_git_server(tmp_path / "other") as other:
        inner = other.commit("inner", FILES)
        modules = f'[submodule "inner"]\n\tpath = inner\n\turl = https://127.0.0.1:{other.port}/inner.git\n'
        server.commit("code", {**FILES, ".gitmodules": modules})
        work = server.folder / "code-work"
        server._git("-C", str(work), "update-index", "--add", "--cacheinfo", f"160000,{inner},inner")
        server._git("-C", str(work), "commit", "--quiet", "--message=submodule")
        server._git("-C", str(work), "push", "--quiet", "origin", "HEAD:main")
        commit = server._git("-C", str(work), "rev-parse", "HEAD").strip()

        code = find_code(make_library(secrets=secrets({"token": TOKEN})), f"{server.url('code')}@{commit}")

        assert sorted(path.name for path in code.iterdir()) == [".gitmodules", "inner", "train.py"]
        assert other.requests == []


def test_login_of_another_host_is_not_sent(server: GitServer, make_library: Any) -> None:
    location = f"{server.url('code')}@{server.commit('code', FILES)}"

    with pytest.raises(AttemptFailed, match=r"are for another host than 127\.0\.0\.1:"):
        find_code(make_library(secrets=secrets({"token": TOKEN, "host": "git.example.org"})), location)

    assert server.requests == []


def test_login_opens_no_private_address(server: GitServer, make_library: Any) -> None:
    commit = server.commit("code", FILES)

    with pytest.raises(AttemptFailed, match="TRAINYARD_FETCH_ALLOW"):
        find_code(make_library(allow=(), secrets=secrets({"token": TOKEN})), f"{server.url('code')}@{commit}")

    assert server.requests == []
