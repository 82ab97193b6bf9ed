"""docker-compose.yml keeps the parts apart by networks, and nodes in a seccomp profile that lets bubblewrap work."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyseccomp
import pytest
import yaml

from app.host.system_call_filter import DENIED, PROFILE, UNKNOWN

ROOT = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NODES = ("node-cpu", "node-gpu")
NODE_PROFILE = ROOT / "deploy" / "docker" / "seccomp-node.json"
RULES: list[dict[str, Any]] = json.loads(NODE_PROFILE.read_text())["syscalls"]
ALLOWED = {name for rule in RULES if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
# What bubblewrap makes a sandbox with, and makes impossible in it.
FOR_BUBBLEWRAP = {"clone", "clone3", "unshare", "mount", "umount", "umount2", "pivot_root"}

UNDER_THE_PROFILE = """
import ctypes, json, sys
from app.host.system_calls import restrict
restrict(bytes.fromhex(sys.stdin.read()))
from workers.sandbox.sandbox import Bubblewrap, choose_sandbox
libc = ctypes.CDLL(None, use_errno=True)
refused = {}
for name, number in json.loads(sys.argv[1]).items():
    libc.syscall(number, -1, -1, -1, -1, -1)
    refused[name] = ctypes.get_errno()
print(json.dumps([isinstance(choose_sandbox("bubblewrap"), Bubblewrap), refused]))
"""


def networks(service: str) -> set[str]:
    return set(SERVICES[service]["networks"])


def peers(service: str) -> set[str]:
    """The services that one can connect to."""
    return {other for other in SERVICES if other != service and networks(other) & networks(service)}


def test_all_networks_are_used_and_declared() -> None:
    assert set().union(*map(networks, SERVICES)) == set(COMPOSE["networks"])


@pytest.mark.parametrize("node", NODES)
def test_a_node_reaches_data_and_broker_and_of_what_answers_users_only_gateways(node: str) -> None:
    assert peers(node) == {"postgres", "redis", "coordinator", "gateway", *NODES} - {node}


@pytest.mark.parametrize("name", ["migrate", "api", "gateway", "coordinator", "flower", "tensorboard", *NODES])
def test_every_process_reaches_database_and_broker(name: str) -> None:
    assert {"postgres", "redis"} <= peers(name)


def test_what_is_published_is_in_the_front() -> None:
    assert {name: networks(name) for name in SERVICES if "ports" in SERVICES[name]} == {
        **{name: {"front"} for name in ("api", "flower", "tensorboard")},
        "gateway": {"front", "back"},  # browsers reach ports of jobs through it, which are on nodes
    }


@pytest.mark.parametrize("node", NODES)
def test_nodes_have_the_profile(node: str) -> None:
    options = dict(option.split("=", 1) for option in SERVICES[node]["security_opt"])

    assert options["seccomp"] == str(NODE_PROFILE.relative_to(ROOT))
    assert "unconfined" not in options["seccomp"]


def test_no_other_part_has_more_than_the_engines_profile() -> None:
    assert [name for name in SERVICES if name not in NODES and "security_opt" in SERVICES[name]] == []


def test_the_profile_allows_what_sandboxes_allow_and_what_makes_them() -> None:
    base = {
        name
        for rule in json.loads(PROFILE.read_text())["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW" and not (rule.get("includes") or {}).get("caps")
        if {"amd64", "arm64"} & set((rule.get("includes") or {}).get("arches", ["amd64"]))
        for name in rule["names"]
    }

    assert base - ((DENIED | UNKNOWN) - FOR_BUBBLEWRAP) == ALLOWED
    assert not FOR_BUBBLEWRAP - ALLOWED


def test_bubblewrap_works_under_the_profile_which_refuses_the_rest() -> None:
    numbers = {name: pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) for name in sorted(DENIED - FOR_BUBBLEWRAP)}
    known = {name: number for name, number in numbers.items() if number >= 0}

    done = subprocess.run(
        [sys.executable, "-c", UNDER_THE_PROFILE, json.dumps(known)],
        input=compiled().hex(),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        cwd=ROOT,
    )

    assert json.loads(done.stdout) == [True, dict.fromkeys(known, 1)]


def compiled() -> bytes:
    """The profile as container engines compile it, for this machine."""
    built = pyseccomp.SyscallFilter(pyseccomp.ERRNO(json.loads(NODE_PROFILE.read_text())["defaultErrnoRet"]))
    for rule in RULES:
        action = pyseccomp.ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else pyseccomp.ERRNO(rule["errnoRet"])
        conditions = [pyseccomp.Arg(each["index"], pyseccomp.EQ, each["value"]) for each in rule.get("args", [])]
        for name in rule["names"]:
            try:
                number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
            except ValueError:  # this libseccomp does not know it
                continue
            if number >= 0:
                built.add_rule(action, number, *conditions)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read, os.fdopen(writer, "wb") as write:
        built.export_bpf(write)
        write.close()
        return read.read()
