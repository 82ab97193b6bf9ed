"""The units of deploy/systemd start our commands, show no secret, and let trainings outlive their worker."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.main import COMMANDS
from config.settings import load_settings

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "systemd"
SERVICES = sorted(path.name for path in FOLDER.glob("*.service"))
LASTING = [name for name in SERVICES if name != "trainyard-backup.service"]
INSTALLED = "/opt/trainyard/.venv/bin/"
KNOWN = {
    "Unit": {"Description", "Documentation", "Wants", "After", "StartLimitIntervalSec"},
    "Service": {
        "Type",
        "User",
        "EnvironmentFile",
        "Environment",
        "ExecStart",
        "ExecStartPre",
        "WorkingDirectory",
        "StateDirectory",
        "StateDirectoryMode",
        "UMask",
        "Restart",
        "RestartSec",
        "KillMode",
        "OOMPolicy",
        "TimeoutStopSec",
        "LimitNOFILE",
        "LimitMEMLOCK",
        "TasksMax",
        "NoNewPrivileges",
        "PrivateTmp",
        "ProtectSystem",
        "ProtectHome",
    },
    "Timer": {"OnCalendar", "RandomizedDelaySec", "Persistent"},
    "Install": {"WantedBy"},
}


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd tells Exec from exec
    parser.read_string((FOLDER / name).read_text())
    return parser


def example() -> dict[str, str]:
    lines = (FOLDER / "trainyard.env.example").read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: value.removeprefix('"').removesuffix('"') for name, value in pairs}


def test_every_process_has_its_unit():
    assert {name.removeprefix("trainyard-").removesuffix(".service") for name in LASTING} == {
        "api",
        "gateway",
        "coordinator",
        "node@",
        "flower",
        "tensorboard",
    }


@pytest.mark.parametrize("name", [*SERVICES, "trainyard-backup.timer"])
def test_units_hold_only_what_systemd_knows(name):
    for section in unit(name).sections():
        assert set(unit(name)[section]) <= KNOWN[section]


@pytest.mark.parametrize("name", SERVICES)
def test_units_start_commands_of_ours_without_secrets(name):
    command = unit(name)["Service"]["ExecStart"]

    words = re.search(rf"{re.escape(INSTALLED)}(\S+) (\S+) ?(\S+)?", command)
    assert words is not None
    if words[1] == "trainyard":
        assert words[2] in COMMANDS
    else:
        assert (words[1], words[2], words[3]) == ("python", "-m", "tasks.flower")
    assert not re.search(r"(?i)password|secret|key", command)


@pytest.mark.parametrize("name", SERVICES)
def test_units_run_as_our_user_with_our_settings_and_modules_only(name):
    service = unit(name)["Service"]

    assert service["User"] == "trainyard"
    assert service["EnvironmentFile"] == "/etc/trainyard/trainyard.env"
    assert service["Environment"] == "PYTHONSAFEPATH=1"
    assert service["UMask"] == "0077"
    assert service["StateDirectory"].split()[0] == Path(example()["TRAINYARD_DATA_DIR"]).name


@pytest.mark.parametrize("name", LASTING)
def test_lasting_units_are_started_again_for_ever(name):
    assert unit(name)["Service"]["Restart"] == "always"
    assert unit(name)["Unit"]["StartLimitIntervalSec"] == "0"
    assert unit(name)["Install"]["WantedBy"] == "multi-user.target"


def test_trainings_outlive_their_worker_and_each_other():
    service = unit("trainyard-node@.service")["Service"]

    assert (service["KillMode"], service["OOMPolicy"]) == ("process", "continue")
    assert {"NoNewPrivileges", "ProtectSystem", "PrivateTmp"} & set(service) == set()  # bubblewrap needs its freedom


def test_only_nodes_leave_processes_behind():
    assert [name for name in SERVICES if unit(name)["Service"].get("KillMode") == "process"] == [
        "trainyard-node@.service"
    ]


def test_every_variable_of_the_example_is_a_setting():
    filled = {name: value.replace("PASSWORD", "x").replace("KEY", "x") for name, value in example().items()}

    settings = load_settings(filled)

    assert settings.database.url == filled["TRAINYARD_DATABASE_URL"]


def test_administrators_get_the_settings_of_the_units(tmp_path):
    settings = tmp_path / "trainyard.env"
    settings.write_text('A="a value with $HOME & more"\n'.replace("$HOME", "?x=1"))
    settings.chmod(0o644)
    tmp_path.chmod(0o755)
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$A, $PYTHONSAFEPATH, $*"\n')
    program.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "TRAINYARD_ENVIRONMENT_FILE": str(settings)}
    command = ["sh", str(ROOT / "deploy/bin/trainyard-admin"), "keys", "list"]

    done = subprocess.run(
        command, env={**environment, "TRAINYARD_PROGRAM": str(program)}, capture_output=True, text=True, check=True
    )

    assert done.stdout == "a value with ?x=1 & more, 1, keys list\n"


def test_the_timer_runs_the_backup():
    assert (FOLDER / "trainyard-backup.timer").with_suffix(".service").exists()
    assert unit("trainyard-backup.timer")["Timer"]["Persistent"] == "true"


def test_systemd_itself_finds_nothing_wrong(tmp_path):
    """Where systemd is installed; what it would say elsewhere, the tests above ask as far as they can."""
    for path in FOLDER.glob("trainyard-*.*"):
        text = path.read_text().replace(INSTALLED, f"{Path(sys.executable).parent}/")
        (tmp_path / path.name.replace("@.", "@here.")).write_text(text)
    analyze = shutil.which("systemd-analyze") or "true"

    units = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run([analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False)

    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "trainyard" in line]
    assert said == []
