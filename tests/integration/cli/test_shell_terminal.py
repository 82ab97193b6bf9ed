"""`trainyard shell` and `exec -t` in a terminal: sizes, keys, and the terminal afterwards."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.database.engine import Database
from tests.systems.reachable_jobs import InTerminal, ReachableJob, reachable_job


@pytest.fixture
def job(database: Database, tmp_path: Path) -> Iterator[ReachableJob]:
    with reachable_job(database, tmp_path) as job:
        yield job


@pytest.fixture
def shell(job: ReachableJob) -> Iterator[InTerminal]:
    """At its prompt."""
    terminal = job.in_terminal("shell", job.id, rows=30, columns=100)
    terminal.until(b"$ ")
    yield terminal
    terminal.close()


def test_a_shell_has_the_size_of_the_terminal_and_follows_it(shell: InTerminal) -> None:
    shell.type(b"stty size; echo $TERM\r")
    assert b"30 100" in shell.until(b"xterm\r\n")

    shell.resize(50, 120)
    shell.type(b"until [ \"$(stty size)\" = '50 120' ]; do :; done; echo fol''lowed\r")
    shell.until(b"followed")


def test_ctrl_c_and_ctrl_d_belong_to_the_job(shell: InTerminal) -> None:
    # A program that prints has the terminal; until then a Ctrl-C is the shell's, which may start it even so.
    shell.type(b"sh -c 'echo be\"\"gun; exec sleep 1000'; echo no''t reached\r")
    shell.until(b"begun")
    shell.type(b"\x03")
    shell.until(b"$ ")
    shell.type(b"echo still he''re\r")
    shell.until(b"still here")
    shell.type(b"\x04")

    assert shell.ended() == 0  # of the last command


def test_the_exit_code_of_a_shell_is_that_of_the_command(shell: InTerminal) -> None:
    shell.type(b"exit 7\r")

    assert shell.ended() == 7
    assert shell.mode == shell.mode_before


def test_tilde_and_dot_leave_at_the_beginning_of_a_line_alone(shell: InTerminal, job: ReachableJob) -> None:
    shell.type(b"echo a~.b\r")
    shell.until(b"\na~.b")
    shell.type(b"~~\x15")  # one ~, which Ctrl-U deletes
    assert shell.mode != shell.mode_before
    shell.type(b"\r~.")

    assert shell.ended() == 255
    assert b"you left the session" in shell.heard
    assert shell.mode == shell.mode_before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_command_leaves_the_terminal_as_it_was(shell: InTerminal, number: signal.Signals) -> None:
    shell.process.send_signal(number)

    assert shell.ended() == 255
    assert shell.mode == shell.mode_before


def test_the_end_of_the_job_ends_a_shell_and_restores_the_terminal(shell: InTerminal, job: ReachableJob) -> None:
    job.site.set_job(job.id, status="CANCELLED")
    job.sandbox.kill()

    assert shell.ended() == 255
    assert b"CANCELLED" in shell.heard
    assert shell.mode == shell.mode_before


def test_a_command_has_a_terminal_when_it_is_asked_for(job: ReachableJob) -> None:
    terminal = job.in_terminal("exec", "-t", job.id, "--", "sh", "-c", "test -t 0 && test -t 2 && stty size")
    try:
        terminal.until(b"24 80")
        assert terminal.ended() == 0
    finally:
        terminal.close()


def test_without_a_terminal_both_say_so(job: ReachableJob) -> None:
    shell = job.run("shell", job.id)
    command = job.run("exec", "-t", job.id, "--", "true")

    assert (shell.returncode, command.returncode) == (2, 2)
    assert b"trainyard exec -i JOB -- sh" in shell.stderr
    assert b"-t needs a terminal" in command.stderr
