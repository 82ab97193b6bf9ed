"""Completion by the printed scripts, in real shells, with the names that a server has."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from app.cli.client.completion import names
from tests.doubles.scripted_server import Handler, ScriptedServer, failure, running, success
from tests.systems.servers import free_port

ROOT = Path(__file__).parents[3]
JOBS = [
    {"job_id": "job-0193aaaa", "name": "support", "status": "TRAINING"},
    {"job_id": "job-0193bbbb", "name": "twice", "status": "FAILED"},
    {"job_id": "job-0193cccc", "name": "twice", "status": "FAILED"},
    {"job_id": "job-0193dddd", "name": "two words", "status": "FAILED"},
]
TASKS = [{"role": "trainer", "count": 1}, {"role": "rollout", "count": 2}]
PAGE = success({"jobs": JOBS, "next_page_token": None})
NODES = success({"nodes": [{"name": "gpu-1", "status": "ready"}, {"name": "gpu-2", "status": "lost"}]})
# The second measured a model that no job of the project has made.
EVALUATIONS = [
    {"evaluation_id": "job-0193eeee", "job_id": "job-0193aaaa", "name": "exam", "status": "COMPLETED"},
    {"evaluation_id": "job-0193ffff", "job_id": None, "name": "published", "status": "PENDING"},
]
IMPORTED = """
import sys
from app.cli.main import main
try:
    main(prog_name="trainyard")
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with running() as server:
        server.script(PAGE)
        yield server


@pytest.fixture
def environment(tmp_path: Path, server: ScriptedServer) -> dict[str, str]:
    """Of a user whose `trainyard` is this checkout's."""
    program = tmp_path / "bin" / "trainyard"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom app.cli.main import main\n\nmain()\n")
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TRAINYARD_URL": server.url,
        "TRAINYARD_API_KEY": "the-key",
    }


def called(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60, check=True)


@cache
def printed_for_bash() -> str:
    """What `trainyard completion bash` prints, for all tests: each start takes a third of a second of computing."""
    command = [sys.executable, "-c", "from app.cli.main import main; main(prog_name='trainyard')", "completion", "bash"]
    return called(command, {"PYTHONPATH": str(ROOT)}).stdout


def in_bash(environment: dict[str, str], line: str) -> list[str]:
    """What bash completes the last word of the line to, by the script that is printed for it."""
    script = """
        eval "$2"
        read -ra COMP_WORDS <<< "$1"
        [[ "$1" == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _trainyard_completion trainyard
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = called(["bash", "--norc", "-c", script, "bash", line, printed_for_bash()], environment)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


@pytest.mark.long
def test_bash_completes_commands_and_options(environment: dict[str, str]) -> None:
    assert in_bash(environment, "trainyard wat") == ["watch"]
    assert in_bash(environment, "trainyard recipes ") == ["list", "show", "submit"]
    assert "--gpu-memory" in in_bash(environment, "trainyard recipes list --gpu")
    assert in_bash(environment, "trainyard recipes list --family ge") == ["gemma"]
    assert in_bash(environment, "trainyard completion f") == ["fish"]


def test_bash_completes_recipes(environment: dict[str, str], server: ScriptedServer) -> None:
    assert in_bash(environment, "trainyard recipes show llama-3.3-70b-q") == ["llama-3.3-70b-qlora-80gb"]
    assert server.seen == []


@pytest.mark.long
def test_bash_completes_jobs_by_id_and_by_name_if_it_is_one_jobs(environment: dict[str, str]) -> None:
    assert in_bash(environment, "trainyard watch job-0193") == [job["job_id"] for job in JOBS]
    assert in_bash(environment, "trainyard cancel sup") == ["support"]
    assert in_bash(environment, "trainyard cancel tw") == []
    assert in_bash(environment, "trainyard logs @") == ["@last"]


def test_bash_completes_names_of_the_group(environment: dict[str, str], server: ScriptedServer) -> None:
    server.script(NODES)

    assert in_bash(environment, "trainyard nodes show gpu") == ["gpu-1", "gpu-2"]


def test_evaluations_are_completed_by_their_own_ids(environment: dict[str, str], server: ScriptedServer) -> None:
    server.script(success({"evaluations": EVALUATIONS, "next_page_token": None}))

    assert in_bash(environment, "trainyard eval cancel ") == ["job-0193eeee", "job-0193ffff"]


@pytest.mark.parametrize("line", ["exec JOB --role ", "shell --index 1 JOB --role ", "logs JOB -f --role "])
def test_bash_completes_roles_of_the_job(environment: dict[str, str], server: ScriptedServer, line: str) -> None:
    job = "job-0193aaaa-0000-7000-8000-000000000000"
    server.script(success({"job_id": job, "name": "rl", "status": "TRAINING", "tasks": TASKS}))

    assert in_bash(environment, f"trainyard {line.replace('JOB', job)}") == ["trainer", "rollout"]
    assert in_bash(environment, f"trainyard {line.replace('JOB', job)}ro") == ["rollout"]


def test_no_roles_are_asked_for_without_a_job(environment: dict[str, str], server: ScriptedServer) -> None:
    assert in_bash(environment, "trainyard exec --role ") == []
    assert in_bash(environment, "trainyard keys create ci --role x") == []
    assert server.seen == []


@pytest.mark.long
def test_answers_are_kept_for_a_moment_and_for_one_key(environment: dict[str, str], server: ScriptedServer) -> None:
    for _ in range(2):
        assert in_bash(environment, "trainyard watch sup") == ["support"]
    assert len(server.seen) == 1

    in_bash({**environment, "TRAINYARD_API_KEY": "another"}, "trainyard watch sup")
    assert len(server.seen) == 2

    kept = list(Path(environment["XDG_CACHE_HOME"]).rglob("*.json"))
    assert [oct(path.stat().st_mode)[-3:] for path in kept] == ["600", "600"]
    assert "the-key" not in "".join(map(str, kept))
    for path in kept:
        os.utime(path, (time.time() - 11, time.time() - 11))
    in_bash(environment, "trainyard watch sup")
    assert len(server.seen) == 3


def test_a_server_that_is_away_or_refuses_is_silent(environment: dict[str, str], server: ScriptedServer) -> None:
    assert in_bash({**environment, "TRAINYARD_URL": f"http://127.0.0.1:{free_port()}"}, "trainyard watch sup") == []

    server.script(failure(401, {"code": "UNAUTHENTICATED", "message": "no", "details": None}))
    assert in_bash(environment, "trainyard watch sup") == []


@pytest.mark.long
def test_a_slow_server_is_waited_for_a_second(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TRAINYARD_URL", server.url)
    monkeypatch.setenv("TRAINYARD_API_KEY", "the-key")

    def drips(handler: Handler) -> None:
        """Each part of the answer comes within the time limit of a connection."""
        handler.send_response(200)
        handler.end_headers()
        for _ in range(6):
            handler.wfile.write(b" ")
            time.sleep(0.3)

    server.script(drips)
    started = time.monotonic()

    found = names.names_of("jobs")

    assert found == []
    assert time.monotonic() - started < 1.6  # and the whole answer takes 1.8
    for thread in [each for each in threading.enumerate() if each.name == names.THREAD]:
        thread.join()


def test_names_of_commands_need_no_import_of_commands(environment: dict[str, str]) -> None:
    asks = {"COMP_WORDS": "trainyard ", "COMP_CWORD": "1", "_TRAINYARD_COMPLETE": "bash_complete"}

    done = called([sys.executable, "-c", IMPORTED], {**environment, **asks})

    assert "plain,submit" in done.stdout.splitlines()
    ours = {name for name in done.stderr.split() if name.startswith("app.cli.")}
    assert ours - {"app.cli.main", "app.cli.lazy_group", "app.cli.client"} == {
        "app.cli.client.completion",
        "app.cli.client.completion.names",
        "app.cli.client.completion.shells",
    }
    assert not {"flask", "sqlalchemy", "marshmallow"} & set(done.stderr.split())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_ask_by_the_same_protocol(environment: dict[str, str], shell: str) -> None:
    words = "trainyard watch sup" if shell == "zsh" else "trainyard watch "
    asks = {
        "COMP_WORDS": words,
        "COMP_CWORD": "2" if shell == "zsh" else "sup",
        "_TRAINYARD_COMPLETE": f"{shell}_complete",
    }

    done = called(["trainyard"], {**environment, **asks})

    assert done.stderr == ""
    assert [word for word in done.stdout.replace("\t", "\n").replace(",", "\n").split("\n") if word == "support"]
    script = called(["trainyard", "completion", shell], environment).stdout
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=60)
    assert f"_TRAINYARD_COMPLETE={shell}_complete" in script


def test_json_of_the_cache_is_judged_by_its_age(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text(json.dumps([["a", "b"]]))
    assert names._read(path) == [("a", "b")]

    path.write_text("{broken")
    assert names._read(path) is None
