"""docs/how-to/openai.md as a reader follows it: in an environment with OpenAI's client alone, while every process of
the installation is killed between the lines.
"""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from itertools import cycle
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil
import pytest

from app.host.processes import processes_of_attempt, supervisors_of
from tests.systems.clients import python_with
from tests.systems.forked_agents import ForkedAgents
from tests.systems.running_up import RunningUp, is_alive, wait_until
from tests.systems.servers import free_port
from tests.systems.system import TRAINYARD

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "openai.md"
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "PREEMPTED"}
ONE_BY_ONE = ("gateway", "api", "coordinator", "redis", "node-h100-1", "attempts")
# Runs a statement of Python for each line of JSON, and says when it is done.
DONE = "----done\n"
READER = f"""
import json, sys
names = {{}}
for line in sys.stdin:
    exec(json.loads(line), names)
    print({DONE!r}, end="", flush=True)
"""
GRADED = [{"messages": [{"role": "user", "content": f"{n} and 1?"}], "answer": str(n + 1)} for n in range(12)]
CHATS = [
    {"messages": [{"role": "user", "content": f"def f{n}(x):"}, {"role": "assistant", "content": f"return {n}"}]}
    for n in range(75)  # four epochs
]
PREFERENCES = [
    {
        "input": {"messages": [{"role": "user", "content": f"def f{n}(x):"}]},
        "preferred_output": [{"role": "assistant", "content": f"return {n}"}],
        "non_preferred_output": [{"role": "assistant", "content": "pass"}],
    }
    for n in range(12)
]


class Section(NamedTuple):
    title: str
    blocks: Sequence[Sequence[str]]  # of Python, divided into statements


def sections() -> list[Section]:
    """Those that have Python."""
    found = []
    for part in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE):
        blocks = re.findall(r"^```python\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        statements = [[ast.get_source_segment(block, each) or "" for each in ast.parse(block).body] for block in blocks]
        if blocks:
            found.append(Section(part.partition("\n")[0], statements))
    return found


class Installation:
    """`trainyard up` with the model `tiny`, in a directory that has the reader's files."""

    def __init__(self, folder: Path, agents: ForkedAgents, owned_pids: set[int]) -> None:
        self._folder, self._agents, self._owned = folder, agents, owned_pids
        self._port = str(free_port())
        self.up = self.start()

    def start(self) -> RunningUp:
        self._agents.serve(self._folder / "data")
        self.up = RunningUp(
            self._folder / "data",
            *("--port", self._port, "--simulate", "h100:4"),
            environment={"TRAINYARD_STORAGE_ROOTS": str(self._folder), "TRAINYARD_SCHEDULER_RETRY_BASE_SECONDS": "0.1"},
        )
        self._owned.add(self.up.process.pid)
        return self.up.wait_until_ready()

    def shell(self, commands: str) -> str:
        environment = {
            **os.environ,
            "PATH": f"{Path(TRAINYARD).parent}:{os.environ['PATH']}",
            "TRAINYARD_DATA_DIR": str(self.up.data_dir),
            "HOME": str(self._folder),
        }
        command = ["bash", "-euo", "pipefail", "-c", commands]
        return subprocess.run(
            command, cwd=self._folder, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60
        ).stdout

    def jobs(self, kind: str = "") -> list[dict[str, Any]]:
        """Those of a kind or of all, replicas and batches too; also while the API is killed."""
        found: list[dict[str, Any]] = []

        def has_answered() -> bool:
            with suppress(OSError, HTTPException, json.JSONDecodeError):
                status, data = self.up.get(f"/v1/jobs?page_size=100{kind and f'&kind={kind}'}")
                found[:] = data["jobs"] if status == 200 else []
                return status == 200
            return False

        wait_until(has_answered, 60)
        return found

    def kill(self, name: str) -> None:
        if name == "attempts":
            wait_until(lambda: all(job["status"] in ENDED or _ranks(job) for job in self.jobs()), 120)
            for job in self.jobs():
                _kill(*supervisors_of(job["job_id"], job["attempt"]), *_ranks(job))
        else:
            _kill(self.up.pid_of(name))

    def kill_everything(self) -> None:
        """What the machine's end would leave, and the start after it."""
        jobs = [job for job in self.jobs() if job["status"] not in ENDED]
        pids = set(self.up.pids().values())
        self.up.stop(signal.SIGKILL)
        _kill(*pids, *(pid for job in jobs for pid in (*supervisors_of(job["job_id"], job["attempt"]), *_ranks(job))))
        wait_until(lambda: not any(is_alive(pid) for pid in pids), 30)
        self.start()


def _ranks(job: dict[str, Any]) -> list[int]:
    return processes_of_attempt(job["job_id"], job["attempt"])


def _kill(*pids: int) -> None:
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()


@pytest.fixture
def installation(
    tmp_path: Path, forked_agents: ForkedAgents, assets: dict[str, str], owned_pids: set[int]
) -> Iterator[Installation]:
    shutil.copytree(assets["model"], tmp_path / "tiny")
    for name, records in (("train", CHATS), ("preferences", PREFERENCES), ("questions", GRADED)):
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    made = Installation(tmp_path, forked_agents, owned_pids)
    try:
        made.shell(f"trainyard models add tiny {tmp_path / 'tiny'}")
        yield made
    finally:
        made.up.stop()


class Python:
    """One that a reader types statements into."""

    def __init__(self, process: "subprocess.Popen[str]", output: IO[str]) -> None:
        self._process, self._output = process, output

    def type(self, statement: str) -> str:
        """What it prints."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(statement)}\n")
        self._process.stdin.flush()
        printed: list[str] = []
        while not (line := self._output.readline()).endswith(DONE):
            assert line, f"{statement}\n{''.join(printed)}"
            printed.append(line)
        return "".join([*printed, line.removesuffix(DONE)])


@contextmanager
def python_of_a_reader(interpreter: Path, folder: Path, environment: dict[str, str]) -> Iterator[Python]:
    with subprocess.Popen(
        [str(interpreter), "-c", READER],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield Python(process, process.stdout)
        finally:
            process.kill()


def client_variables(installation: Installation) -> dict[str, str]:
    said = installation.shell('eval "$(trainyard client-config openai)"; env')
    return dict(line.split("=", 1) for line in said.splitlines() if line.startswith("OPENAI_"))


def as_a_reader_waits(section: Section, installation: Installation) -> None:
    """For the end of the model that later sections ask; of other trainings for their first step."""

    def has_gone_on(job: dict[str, Any]) -> bool:
        assert job["status"] not in {"FAILED", "PREEMPTED"}, job
        return job["status"] in ENDED or (section.title != "Upload, fine-tune, follow" and job["current_step"] >= 1)

    wait_until(lambda: all(map(has_gone_on, installation.jobs("training"))), 300)
    for job in installation.jobs("training"):
        if job["status"] not in ENDED:
            installation.shell(f"trainyard cancel {job['job_id']}")
    wait_until(lambda: all(job["status"] in ENDED for job in installation.jobs("training")), 60)


def walk(python: Python, installation: Installation, before: Callable[[int, int], None]) -> str:
    """What the page's lines print; ``before`` each it gets the number of the line, and that of its section's middle."""
    printed = []
    for section in sections():
        number, middle = 0, sum(map(len, section.blocks)) // 2 + 1
        for block in section.blocks:
            for statement in block:
                before(number, middle)
                printed.append(python.type(statement))
                number += 1
            as_a_reader_waits(section, installation)
    return "".join(printed)


def check_what_was_printed(said: str) -> None:
    assert re.search(r"^succeeded ft:tiny:default:docs:\w{8}$", said, re.MULTILINE), said
    assert re.search(r"^\d+ .* ft:tiny:default:docs:\w{8}:ckpt-step-\d+$", said, re.MULTILINE), said
    assert "completed BatchRequestCounts(completed=2, failed=0, total=2) None" in said, said


def test_the_page_works_as_printed(installation: Installation, tmp_path: Path) -> None:
    with python_of_a_reader(python_with("openai"), tmp_path, client_variables(installation)) as python:
        said = walk(python, installation, lambda number, middle: None)

    check_what_was_printed(said)


@pytest.mark.parametrize("killed", ["one by one", "all at once"])
def test_the_page_works_as_printed_while_every_process_is_killed(
    installation: Installation, tmp_path: Path, killed: str
) -> None:
    victims = cycle(ONE_BY_ONE)

    def kill_the_next(number: int, middle: int) -> None:
        installation.kill(next(victims))

    def kill_everything_once(number: int, middle: int) -> None:
        if number == middle:
            installation.kill_everything()

    before = kill_the_next if killed == "one by one" else kill_everything_once
    with python_of_a_reader(python_with("openai"), tmp_path, client_variables(installation)) as python:
        said = walk(python, installation, before)

    check_what_was_printed(said)
