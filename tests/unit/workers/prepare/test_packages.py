"""Package environments: what their keys depend on, who shares them, and what uv's messages mean."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.spec.packages import Packages
from config.packages import PackagesSettings
from workers.attempt_failed import AttemptFailed
from workers.prepare.packages.capabilities import package_capabilities
from workers.prepare.packages.failures import failure
from workers.prepare.packages.interpreters import interpreter_for, own_interpreter
from workers.prepare.packages.request import EnvironmentRequest, node_paths, scope_of, torch_versions
from workers.prepare.packages.requirements_file import read_requirements_file

HASH = "--hash=sha256:" + "0123456789abcdef" * 4
LOCKED = Packages(lock=f"numpy==2 {HASH}")
REQUEST = EnvironmentRequest(
    packages=Packages(requirements=("b", "a")), interpreter=own_interpreter(), index_url="", project="one", uv="1"
)


def test_key_is_that_of_the_content_not_of_the_order():
    assert REQUEST.key == replace(REQUEST, packages=Packages(requirements=("a", "b"))).key
    assert REQUEST.key == replace(REQUEST, login=("me", "word")).key


@pytest.mark.parametrize(
    "changed",
    [
        {"packages": Packages(requirements=("b",))},
        {"packages": Packages(requirements=("b", "a"), allow_source_builds=True)},
        {"packages": LOCKED},
        {"interpreter": replace(own_interpreter(), version="3.99.1")},
        {"index_url": "https://h.example/simple"},
        {"project": "two"},
        {"uv": "2"},
    ],
)
def test_key_differs_by_what_changes_the_environment(changed):
    assert replace(REQUEST, **changed).key != REQUEST.key


@pytest.mark.parametrize(
    ("packages", "is_confined", "has_login", "scope"),
    [
        (LOCKED, True, False, ""),
        (LOCKED, True, True, "one"),  # others have not shown that they may read the index
        (LOCKED, False, False, "one"),  # jobs without a sandbox could change it
        (LOCKED.changed(allow_source_builds=True), True, False, "one"),
        (REQUEST.packages, True, False, "one"),
    ],
)
def test_only_what_hashes_determine_is_shared_between_projects(packages, is_confined, has_login, scope):
    assert scope_of(packages, "one", is_confined=is_confined, has_login=has_login) == scope


def test_node_torch_is_taken_over_unless_the_job_names_its_own():
    named = replace(REQUEST, packages=Packages(requirements=("Torch==2.9", "a")))
    other = replace(REQUEST, interpreter=replace(own_interpreter(), version="3.99.1", path=Path("/usr/bin/python3.99")))

    assert REQUEST.node_torch == torch_versions() != {}
    assert named.node_torch == {}
    assert other.node_torch == {}  # another ABI: it can't import the node's packages
    assert node_paths(other.interpreter) == []


@pytest.mark.parametrize(
    ("said", "cause", "message"),
    [
        (
            "error: No solution found\n  cause: Because nowhere was not found in the registry",
            "PACKAGES_FAILED",
            "nowhere can't be installed. uv says:",
        ),
        (
            "No solution found\nBecause there is no version of numpy==2.1.0 and you require numpy==2.1.0",
            "PACKAGES_FAILED",
            "numpy can't be installed",
        ),
        ("Failed to download `a==1`\n  Hash mismatch for `a==1`", "PACKAGES_FAILED", "a==1 can't be installed"),
        ("Failed to build `a==1`\n  boom: connection refused", "PACKAGES_FAILED", "a==1 can't be installed"),
        ("error: Failed to fetch: `https://h/simple/a/`\n dns error", "NETWORK_ERROR", "h.example can't be reached"),
        ("error: Failed to fetch: `https://h/simple/a/`\n dns error", "NETWORK_ERROR", "TRAINYARD_PACKAGES_INDEX_URL"),
        ("Failed to download `a`\n HTTP status client error (404 Not Found) for url (u)", "PACKAGES_FAILED", "404"),
        ("HTTP status client error (429 Too Many Requests)", "NETWORK_ERROR", "h.example can't be reached"),
        ("HTTP status server error (503 Service Unavailable)", "NETWORK_ERROR", "h.example can't be reached"),
        ("10.0.0.1: it leads to a private address\nFailed to fetch", "PACKAGES_FAILED", "TRAINYARD_FETCH_ALLOW"),
        ("HTTP status client error (401 Unauthorized)", "PACKAGES_FAILED", "UV_INDEX_PASSWORD"),
        ("failed to write: No space left on device (os error 28)", "DISK_FULL", "the disk"),
        ("", "PACKAGES_FAILED", "exit code 2"),
    ],
)
def test_messages_of_uv_tell_what_may_be_retried(said, cause, message):
    found = failure(said, 2, "h.example")

    assert (found.error_type, message in found.message) == (cause, True), found.message


def test_last_lines_are_quoted():
    found = failure("\n".join(f"line {number}" for number in range(100)), 1, "PyPI")

    assert "line 99" in found.message
    assert "line 50" not in found.message


@pytest.mark.parametrize("name", ["requirements.txt", "parts/more.txt"])
def test_requirements_file_is_read_from_the_code(tmp_path, name):
    (tmp_path / "parts").mkdir()
    (tmp_path / name).write_bytes("\ufeffnumpy==2\n".encode())

    found = read_requirements_file(Packages(requirements_file=name), tmp_path)

    assert found.packages == Packages(requirements=("numpy==2",))


@pytest.mark.parametrize("code", ["here", None])
def test_file_that_is_missing_fails_only_the_job_that_requires_it(tmp_path, code):
    place = tmp_path if code else None
    asked = Packages(requirements_file="r.txt")

    optional = read_requirements_file(asked.changed(requirements_file_required=False), place)
    with pytest.raises(AttemptFailed, match="is not in the code") as failed:
        read_requirements_file(asked, place)

    assert not optional.was_found
    assert optional.packages.requirements_file == ""
    assert failed.value.error_type == "INVALID_CONFIG"


def test_no_file_outside_of_the_code_is_read(tmp_path):
    (tmp_path / "secret").write_text("do-not-show\n")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "r.txt").write_text("do-not-show\n")
    code = tmp_path / "code"
    code.mkdir()
    (code / "r.txt").symlink_to(tmp_path / "secret")
    (code / "folder").symlink_to(tmp_path / "secrets")
    os.mkfifo(code / "pipe")

    for name in ("r.txt", "folder/r.txt", "pipe", "../secret", str(tmp_path / "secret")):
        with pytest.raises(AttemptFailed) as failed:
            read_requirements_file(Packages(requirements_file=name, requirements_file_required=True), code)
        assert failed.value.error_type == "INVALID_CONFIG"
        assert "do-not-show" not in failed.value.message


@pytest.mark.parametrize(("content", "says"), [(b"\xff\xfe", "is not UTF-8"), (b"#" * (600 << 10), "has more than")])
def test_file_that_is_no_text_is_refused(tmp_path, content, says):
    (tmp_path / "r.txt").write_bytes(content)

    with pytest.raises(AttemptFailed, match=says):
        read_requirements_file(Packages(requirements_file="r.txt"), tmp_path)


def test_node_offers_what_it_can_make_environments_with(monkeypatch):
    own = own_interpreter()
    offered = package_capabilities(PackagesSettings(), ())

    assert offered[0] == "packages"
    assert {f"python:{own.minor}", f"python:{own.version}"} <= {*offered}
    assert package_capabilities(PackagesSettings(enabled=False), ()) == ()
    monkeypatch.setattr("workers.prepare.packages.capabilities.find_uv", lambda: None)
    assert package_capabilities(PackagesSettings(), ()) == ()


def test_interpreters_below_directories_of_programs_are_offered_if_they_work(tmp_path):
    for place, line in (
        ("bin/python3.97", "echo 3.97.1"),
        ("one/bin/python3.98", "echo 3.98.2"),
        ("several/cpython/bin/python3.99", "echo 3.99.3"),
        ("broken/bin/python3.96", "exit 1"),
        ("open/bin/python3.95", "echo 3.95.1"),
    ):
        path = tmp_path / place
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    (tmp_path / "open").chmod(0o777)  # another user could exchange what the worker runs
    offered = package_capabilities(PackagesSettings(), (tmp_path,))

    assert {"python:3.97", "python:3.98.2", "python:3.99"} <= {*offered}
    assert {"python:3.95", "python:3.96"}.isdisjoint(offered)
    assert interpreter_for("3.98", (tmp_path,)).path == tmp_path / "one/bin/python3.98"
    with pytest.raises(AttemptFailed, match="below a directory of TRAINYARD_NODE_SOFTWARE"):
        interpreter_for("3.98", ())


def make_interpreter(path, line):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_interpreters_that_sandboxes_do_not_show_are_not_offered(tmp_path):
    software, elsewhere = tmp_path / "software", tmp_path / "elsewhere"
    make_interpreter(elsewhere / "bin/python3.94", "echo 3.94.1")
    make_interpreter(software / "made/bin/python3.93", "echo 3.93.1")
    make_interpreter(software / "near/bin/python3.92", "echo 3.92.1")
    (software / "bin").mkdir()
    (software / "bin/python3.94").symlink_to(elsewhere / "bin/python3.94")
    (software / "made/pyvenv.cfg").write_text(f"home = {elsewhere}/bin\n")
    (software / "near/pyvenv.cfg").write_text(f"home = {software}/bin\n")

    offered = {*package_capabilities(PackagesSettings(), (software,))}

    assert {"python:3.92", "python:3.92.1"} <= offered
    assert {"python:3.93", "python:3.94"}.isdisjoint(offered)


def test_interpreter_whose_libraries_sandboxes_do_not_show_is_not_offered(tmp_path):
    """As one that was moved, and finds its shared library where it was built."""
    software = tmp_path / "software"
    for minor, directory in (("3.88", software), ("3.87", tmp_path / "built")):
        mapped = f"7f00-7f01 r-xp 00000000 08:01 42  {directory}/lib/libpython{minor}.so.1.0"
        make_interpreter(
            software / f"bin/python{minor}", f"echo {minor}.1; echo '7f00-7f01 rw-p 0 0:0 0 [heap]'; echo '{mapped}'"
        )

    offered = {*package_capabilities(PackagesSettings(), (software,))}

    assert "python:3.88" in offered
    assert "python:3.87" not in offered


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_links_of_other_users_lead_to_no_interpreter(tmp_path):
    shared = tmp_path / "shared"
    make_interpreter(tmp_path / "good/bin/python3.89", "echo 3.89.1")
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "theirs").symlink_to(tmp_path / "good")
    os.lchown(shared / "theirs", 12345, 12345)
    (shared / "ours").symlink_to("../good")
    (tmp_path / "by_theirs").symlink_to(shared / "theirs")
    (tmp_path / "by_ours").symlink_to(shared / "ours")

    assert "python:3.89" not in package_capabilities(PackagesSettings(), (tmp_path / "by_theirs",))
    assert "python:3.89" in package_capabilities(PackagesSettings(), (tmp_path / "by_ours",))
