"""The doctor tells whether attempts on this machine have users of their own, and why not."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.nodes.sandboxes import UNLOCKED
from app.host import own_users
from app.host.bubblewrap import Lack
from app.services.operations.diagnosis import machine
from app.services.operations.diagnosis.findings import Level
from app.services.operations.diagnosis.site import Site
from tests.systems.examining import said

NONE = "attempts here have the host user of the worker, and none of their own: "


@pytest.mark.parametrize(
    ("uids", "euid", "lack", "level", "message"),
    [
        (
            "7000-7009",
            0,
            "",
            Level.OK,
            "each attempt has a host user of its own, of 7000-7009, and its ports in the machine's network",
        ),
        ("7000-7009", 0, "no such call", Level.WARNING, NONE + "no such call"),
        ("7000-7009", 990, "its worker is not root", Level.SKIPPED, NONE + "its worker is not root"),
        ("", 0, "TRAINYARD_NODE_UIDS is empty", Level.SKIPPED, NONE + "TRAINYARD_NODE_UIDS is empty"),
    ],
)
def test_users_of_attempts_are_told(
    site: Site, monkeypatch: pytest.MonkeyPatch, uids: str, euid: int, lack: str, level: Level, message: str
) -> None:
    monkeypatch.setattr(own_users, "lack_of_own_users", lambda *_: lack)
    monkeypatch.setattr(machine, "lack_of_guards", lambda _: "")
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    settings = replace(site.settings, node=replace(site.settings.node, uids=uids))

    (finding,) = said(replace(site, settings=settings), "host users")

    assert (finding.level, finding.message) == (level, message)


def test_ports_that_others_may_reach_are_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_users, "lack_of_own_users", lambda *_: "")
    monkeypatch.setattr(machine, "lack_of_guards", lambda _: "no such call")

    (finding,) = said(site, "host users")

    assert finding.message.endswith("but not its ports in the machine's network (no such call)")


def test_device_files_that_no_own_user_could_open_are_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_users, "lack_of_own_users", lambda *_: "")
    monkeypatch.setattr(own_users, "closed_gpu_files", lambda: [Path("/dev/nvidia0"), Path("/dev/nvidiactl")])
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    (finding,) = said(site, "host users")

    assert (finding.level, finding.message) == (
        Level.WARNING,
        NONE + "not all users may use /dev/nvidia0, /dev/nvidiactl",
    )


def test_jobs_without_a_sandbox_have_none(site: Site) -> None:
    settings = replace(site.settings, node=replace(site.settings.node, sandbox="process"))

    (finding,) = said(replace(site, settings=settings), "host users")

    assert finding.level is Level.SKIPPED


@pytest.mark.parametrize(
    ("lack", "message"),
    [
        (None, "with Landlock as a second lock"),
        (Lack(kind=UNLOCKED, detail="no such call"), "without Landlock as a second lock (no such call)"),
    ],
)
def test_second_lock_is_told_as_nodes_try_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, lack: Lack | None, message: str
) -> None:
    def tried(*, in_sandbox: bool) -> Lack | None:
        assert in_sandbox
        return lack

    monkeypatch.setattr(machine, "lack_of_landlock", tried)
    monkeypatch.setattr(machine, "lack_of_sandbox", lambda: None)

    (finding,) = said(site, "sandbox")

    assert (finding.level, finding.message) == (Level.OK, f"bubblewrap works, {message}")
