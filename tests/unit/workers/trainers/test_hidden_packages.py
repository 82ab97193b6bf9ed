"""Triton is used only where it can build its kernels."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from workers.trainers.hidden_packages import can_build_kernels

ROOT = Path(__file__).parents[4]
IMPORTS = """
import sys
from workers.trainers.hidden_packages import leave_out
leave_out(sys.argv[1:2], sys.argv[2:3])
print(*sorted(name for name, module in sys.modules.items() if module is None))
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """(directory of its programs, directory of Python's headers), both empty"""
    programs, headers = tmp_path / "programs", tmp_path / "headers"
    programs.mkdir()
    headers.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: {"include": str(headers)}[name])
    return programs, headers


def put_compiler(directory):
    compiler = directory / "gcc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)


def test_kernels_take_a_compiler_and_headers(machine, monkeypatch):
    programs, headers = machine
    assert not can_build_kernels()

    (headers / "Python.h").touch()
    assert not can_build_kernels()
    monkeypatch.setenv("CC", "/opt/cc")
    assert can_build_kernels()
    monkeypatch.delenv("CC")
    put_compiler(programs)
    assert can_build_kernels()

    (headers / "Python.h").unlink()
    assert not can_build_kernels()


@pytest.mark.parametrize(
    ("framework", "method", "left_out"),
    [
        ("HF_TRAINER", "SFT", "bitsandbytes deepspeed triton wandb"),
        ("HF_TRAINER", "QLORA", "deepspeed triton wandb"),
        ("DEEPSPEED", "SFT", "bitsandbytes triton wandb"),
    ],
)
def test_rank_does_without_what_it_does_not_use(machine, framework, method, left_out):
    command = [sys.executable, "-c", IMPORTS, framework, method]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)

    assert done.stdout.split() == left_out.split()
