"""Ranks whose output is a terminal, in both kinds of sandbox."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.workers.rank.launching import Run, make_plan, write_script
from workers.sandbox.sandbox import Bubblewrap, ProcessGroup, Sandbox


@pytest.mark.parametrize("sandbox", [Bubblewrap(), ProcessGroup()], ids=lambda sandbox: sandbox.kind)
def test_output_may_be_a_terminal_whose_bytes_arrive_as_they_were_written(tmp_path: Path, sandbox: Sandbox) -> None:
    """More than a terminal holds at once, and the end of one rank is not that of another."""
    script = (
        "import os, sys\n"
        "print(sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.isatty(), os.environ['TERM'])\n"
        "print(*os.get_terminal_size(), flush=True)\n"
        "if os.environ['RANK'] == '1': sys.exit()\n"
        "sys.stdout.write('x' * 300_000 + '\\r\\n\\t' + '\\x04' + 'end\\n')\n"
    )
    run = Run(make_plan(tmp_path, write_script(tmp_path / "mine", script), sandbox, terminal=True, world_size=2))

    with closing(run):
        assert run.finish() == 0

    begin = "True True False xterm-256color\n80 24\n"
    assert run.log(0) == f"{begin}{'x' * 300_000}\r\n\t\x04end\n"
    assert run.log(1) == begin


@pytest.mark.parametrize("sandbox", [Bubblewrap(), ProcessGroup()], ids=lambda sandbox: sandbox.kind)
def test_terminal_opens_by_its_names_as_a_pipe_does(tmp_path: Path, sandbox: Sandbox) -> None:
    script = (
        "import os, subprocess, sys\n"
        "with open('/dev/stdout', 'w') as file: print('out', file.isatty(), file=file)\n"
        "with open('/dev/stderr', 'a+b', buffering=0) as file: file.write(b'error\\n')\n"
        "subprocess.run(['sh', '-c', 'echo shell > /dev/stderr; echo tee | tee /dev/stdout'], check=True)\n"
    )
    run = Run(make_plan(tmp_path, write_script(tmp_path / "mine", script), sandbox, terminal=True))

    with closing(run):
        assert run.finish() == 0, run.log(0)

    assert run.log(0) == "out True\nerror\nshell\ntee\ntee\n"
