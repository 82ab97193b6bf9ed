"""`trainyard up` with real processes: what it promises about start, pid files, restarts and the end."""

import base64
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text

from app.cli.local.embedded_redis import is_free
from app.database.engine import make_engine
from tests.systems.running_up import RunningUp, is_alive, trainyard, wait_until
from tests.systems.servers import PostgresServer

PROCESSES = {"api", "gateway", "coordinator", "node-local", "redis", "flower", "tensorboard"}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[RunningUp]:
    """One that all tests may look at and none may stop."""
    running = RunningUp(tmp_path_factory.mktemp("shared") / "data", flower=True, tensorboard=True)
    owned_pids.add(running.process.pid)
    yield running.wait_until_ready()
    running.stop()


@pytest.mark.long
def test_ready_means_ready(up: RunningUp) -> None:
    assert up.get("/health/ready")[0] == 200
    assert re.search(r"Ready after \d+\.\d s", up.output)


@pytest.mark.long
def test_it_says_where_everything_is(up: RunningUp) -> None:
    assert f"API        {up.url}   key in {up.data_dir}/admin.key" in up.output
    assert f"http://127.0.0.1:{up.flower_port}" in up.output
    assert up.key not in up.output


@pytest.mark.long
def test_every_process_has_a_pid_file_and_a_log(up: RunningUp) -> None:
    pids = up.pids()

    assert set(pids) == PROCESSES
    assert all(is_alive(pid) for pid in pids.values())
    assert {path.stem for path in (up.data_dir / "log").glob("*.log")} == PROCESSES


@pytest.mark.long
def test_secrets_are_for_the_owner_alone_and_in_no_command_line(up: RunningUp) -> None:
    files = ["admin.key", "secret.key", "broker.url", "flower.password", "redis/redis.conf"]
    secrets = [(up.data_dir / name).read_text().strip() for name in files[:4]]

    assert {name: oct((up.data_dir / name).stat().st_mode & 0o777) for name in files} == dict.fromkeys(files, "0o600")
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in up.pids().values()]
    assert not [command for command in commands for secret in secrets if secret in command]


@pytest.mark.long
def test_processes_are_found_by_their_command_lines_and_hold_nothing_of_up(up: RunningUp) -> None:
    pids = up.pids()
    commands = {name: psutil.Process(pid).cmdline()[1:4] for name, pid in pids.items()}
    lock = up.data_dir / "run" / "up.lock"
    opened = {name: _opened_by(pid) for name, pid in pids.items()}

    assert commands["api"] == ["-m", "gunicorn", "app.late_application:from_environment()"]
    assert commands["coordinator"] == ["-m", "tasks.coordinator"]
    assert commands["node-local"] == ["-m", "tasks.node"]
    assert commands["tensorboard"][:2] == ["-m", "app.tensorboard"]
    assert not [name for name, files in opened.items() if lock in files]
    assert {os.getpgid(pid) for pid in pids.values()} == set(pids.values())


def _opened_by(pid: int) -> list[Path]:
    files = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            files.append(descriptor.readlink())
    return files


@pytest.mark.long
def test_flower_asks_for_its_password(up: RunningUp) -> None:
    # Readiness does not include Flower: `trainyard up` does not wait for it.
    wait_until(lambda: not is_free("127.0.0.1", up.flower_port))
    url = f"http://127.0.0.1:{up.flower_port}/api/workers"
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        urllib.request.urlopen(url, timeout=10)
    refused.value.close()

    password = (up.data_dir / "flower.password").read_text().strip()
    pair = base64.b64encode(f"admin:{password}".encode()).decode()
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": f"Basic {pair}"})) as answer:
        assert answer.status == 200


@pytest.mark.long
def test_the_own_node_is_named_local(up: RunningUp) -> None:
    assert up.get("/v1/nodes/local")[1]["status"] == "ready"


@pytest.mark.long
def test_a_second_one_on_the_same_directory_is_refused(up: RunningUp) -> None:
    second = subprocess.run(
        trainyard("up", "--data-dir", str(up.data_dir), "--port", "0", "--no-flower"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert second.returncode == 1
    assert f"already runs on {up.data_dir} (process {up.process.pid})" in second.stderr
    assert is_alive(up.process.pid)


@pytest.mark.long
def test_a_port_in_use_is_named_with_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = subprocess.run(
            trainyard("up", "--data-dir", str(tmp_path), "--port", str(port), "--no-flower"),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    assert started.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in started.stderr
    assert "--port" in started.stderr


@pytest.mark.long
def test_a_flower_port_in_use_is_named_with_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        started = subprocess.run(
            trainyard("up", "--data-dir", str(tmp_path), "--port", "0", "--flower-port", port),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    assert started.returncode == 1
    assert "--flower-port" in started.stderr


def test_all_wrong_settings_are_reported(tmp_path: Path) -> None:
    started = subprocess.run(
        trainyard("up", "--data-dir", str(tmp_path)),
        env={**os.environ, "TRAINYARD_API_PROT": "1", "TRAINYARD_API_THREADS": "many"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert started.returncode == 1
    assert "TRAINYARD_API_PROT" in started.stderr
    assert "TRAINYARD_API_THREADS" in started.stderr


@pytest.mark.long
def test_an_administrator_finds_server_and_key_by_the_data_directory(up: RunningUp) -> None:
    listed = subprocess.run(
        trainyard("nodes", "list"),
        env={**os.environ, "TRAINYARD_DATA_DIR": str(up.data_dir)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert "local" in listed.stdout


@pytest.mark.long
def test_a_node_alone_finds_everything_in_the_data_directory(up: RunningUp, tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('labels = ["rack-2"]\n[[devices]]\ntype = "h200"\nmemory_mb = 1000\ncount = 2\n')
    with (tmp_path / "log").open("wb") as log:
        node = subprocess.Popen(
            trainyard("node", "--name", "second", "--config", "node.toml"),
            env={**os.environ, "TRAINYARD_DATA_DIR": str(up.data_dir)},
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: up.get("/v1/nodes/second")[0] == 200)
        assert up.get("/v1/nodes/second")[1]["labels"] == ["rack-2"]
    finally:
        node.terminate()
        node.wait(20)


@pytest.mark.long
@pytest.mark.parametrize("name", ["api", "coordinator", "node-local", "redis"])
def test_a_killed_process_is_back_in_a_moment(up: RunningUp, name: str) -> None:
    before = up.pid_of(name)
    key = (up.data_dir / "broker.url").read_text()

    os.kill(before, signal.SIGKILL)
    wait_until(lambda: up.pid_of(name) != before)

    wait_until(lambda: up.get("/health/ready")[0] == 200)
    assert f"{name} ended (SIGKILL)" in up.output
    assert (up.data_dir / "broker.url").read_text() == key


@pytest.mark.long
def test_requests_wait_while_the_api_is_started_again(up: RunningUp) -> None:
    before = up.pid_of("api")
    workers = [child.pid for child in psutil.Process(before).children()]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in workers))

    assert up.get("/health")[0] == 200

    assert up.pid_of("api") != before


@pytest.mark.long
def test_a_stop_during_the_start_is_clean_too(tmp_path: Path) -> None:
    running = RunningUp(tmp_path / "data")
    wait_until((tmp_path / "data" / "run" / "redis.pid").exists)

    assert running.stop() == 0

    assert not running.pids()


@pytest.mark.long
def test_a_killed_start_and_a_drained_node_are_found_again_by_the_next_starts(tmp_path: Path) -> None:
    """A start takes seconds: three of them show what is kept, what is undone, and what is left alone."""
    first = RunningUp(tmp_path / "data").wait_until_ready()
    pids, key, port = first.pids(), first.key, first.url.rpartition(":")[2]
    first.stop(signal.SIGKILL)
    (first.data_dir / "run" / "draining-local").touch()  # by a stop that was cut off
    _execute(first.data_dir, "UPDATE node SET state = 'draining'")

    second = RunningUp(first.data_dir, "--port", port).wait_until_ready()
    assert not [name for name, pid in pids.items() if is_alive(pid)], "the kill ended the children"
    assert (second.key, second.get("/v1/jobs")[0]) == (key, 200)
    assert _node_states(_sqlite(second)) == {"local": "ready"}, "the drain that was cut off is undone"
    _execute(first.data_dir, "UPDATE node SET state = 'drained'")
    second.stop()

    third = RunningUp(first.data_dir).wait_until_ready()
    assert _node_states(_sqlite(third))["local"] in ("draining", "drained"), "an administrator's drain stays"
    third.stop()


@pytest.mark.long
def test_each_start_has_the_database_and_the_broker_that_it_is_given_and_ends_cleanly(
    tmp_path: Path, postgres_server: PostgresServer, redis_url: str
) -> None:
    postgres_server.execute("CREATE DATABASE up_alone")
    database_url = postgres_server.url("up_alone")
    environment = {"TRAINYARD_DATABASE_URL": database_url, "TRAINYARD_BROKER_URL": redis_url}
    running = RunningUp(tmp_path / "data", environment=environment, flower=True, tensorboard=True).wait_until_ready()

    assert set(running.pids()) == PROCESSES - {"redis"}
    assert running.get("/v1/jobs")[0] == 200
    assert not (tmp_path / "data" / "trainyard.db").exists()
    _end_cleanly(running, signal.SIGTERM, database_url)
    # Every start says anew which database and broker it is for.
    again = RunningUp(tmp_path / "data", flower=True, tensorboard=True).wait_until_ready()
    assert "the last start used postgresql at 127.0.0.1/up_alone" in again.output
    assert set(again.pids()) == PROCESSES
    assert (tmp_path / "data" / "trainyard.db").exists()
    assert not (tmp_path / "data" / "database.url").exists()
    _end_cleanly(again, signal.SIGINT, _sqlite(again))
    postgres_server.execute("DROP DATABASE up_alone WITH (FORCE)")


@pytest.mark.long
def test_a_database_that_is_away_is_named(tmp_path: Path) -> None:
    environment = {"TRAINYARD_DATABASE_URL": "postgresql://unknown@127.0.0.1:1/none"}
    running = RunningUp(tmp_path / "data", environment=environment)

    assert running.process.wait(40) == 1

    assert "could not prepare the database" in running.output
    assert not running.pids()


@pytest.mark.long
def test_jobs_may_read_from_the_directory_where_it_was_started(up: RunningUp) -> None:
    environment = Path(f"/proc/{up.pid_of('node-local')}/environ").read_text().split("\0")

    assert f"TRAINYARD_STORAGE_ROOTS={up.data_dir.parent}" in environment


def _end_cleanly(running: RunningUp, number: int, database_url: str) -> None:
    pids = running.pids()

    assert running.stop(number) == 0

    assert not [name for name, pid in pids.items() if is_alive(pid)]
    assert not list((running.data_dir / "run").glob("*.pid"))
    assert _node_states(database_url) == {"local": "lost"}, "until a worker of that name registers"


def _sqlite(running: RunningUp) -> str:
    return f"sqlite:///{running.data_dir / 'trainyard.db'}"


def _node_states(database_url: str) -> dict[str, str]:
    engine = make_engine(database_url)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT name, state FROM node")).all()
    engine.dispose()
    return {row.name: row.state for row in rows}


def _execute(data_dir: Path, statement: str) -> None:
    engine = make_engine(f"sqlite:///{data_dir / 'trainyard.db'}")
    with engine.execution_options(writes=True).begin() as connection:
        connection.execute(text(statement))
    engine.dispose()
