"""Commands, shells and forwarded connections through a gateway, on real session servers and relays."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.systems.session_sites import SessionSite
from trainyard.protocol.interactive import CLOSE, RESIZE, STATUS, STDERR, STDIN

PORT_TEXT = b"hello from the job"


@pytest.fixture
def site(make_session_site: Callable[..., SessionSite]) -> SessionSite:
    site = make_session_site()
    site.serve()
    return site


def test_a_command_runs_and_its_end_is_recorded(site: SessionSite) -> None:
    sandbox = site.sandbox()
    session_id, ticket = sandbox.session("sh", "-c", "echo out; echo err >&2; exit 3")

    async def scenario() -> None:
        async with site.opened(session_id, ticket) as person:
            heard = await person.all()
        assert heard.stdout == b"out\n"
        assert heard.of(STDERR) == b"err\n"
        assert heard.status == {"exit_code": 3, "signal": None, "message": ""}
        assert heard.code == 1000

    asyncio.run(scenario())
    row = site.ended(session_id)
    assert (row.exit_code, row.bytes_in, row.bytes_out) == (3, 0, 8)
    assert row.end_reason == "the command has ended with exit code 3"
    (line,) = site.ends(session_id)
    assert line.data["bytes_out"] == 8


def test_input_reaches_a_command_and_its_end_does(site: SessionSite) -> None:
    session_id, ticket = site.sandbox().session("wc", "-c")

    async def scenario() -> None:
        async with site.opened(session_id, ticket) as person:
            for _ in range(100):
                await person.say(STDIN, b"x" * 50_000)
            await person.end_input()
            heard = await person.all()
        assert int(heard.stdout) == 5_000_000

    asyncio.run(scenario())
    assert site.ended(session_id).bytes_in == 5_000_000


@pytest.mark.long
def test_a_shell_has_a_terminal_with_a_size_and_takes_ctrl_c(site: SessionSite) -> None:
    session_id, ticket = site.sandbox().session(kind="shell", rows=30, columns=100)

    async def scenario() -> None:
        async with site.opened(session_id, ticket) as person:
            await person.type("stty size\n")
            await person.until(b"30 100\r\n")
            await person.say(RESIZE, json.dumps({"rows": 40, "columns": 120}).encode())
            await person.type("stty size\n")
            await person.until(b"40 120\r\n")
            # A program that prints has the terminal; until then a Ctrl-C is the shell's, which may start it even so.
            await person.type("sh -c 'echo be\"\"gun; exec sleep 1000'; echo 'interr''upted' $?\n")
            await person.until(b"begun\r\n")
            await person.type("\x03")
            await person.type("echo st''ill here\n")
            await person.until(b"still here\r\n")
            await person.type("exit 7\n")
            heard = await person.all()
        assert heard.status == {"exit_code": 7, "signal": None, "message": ""}

    asyncio.run(scenario())


def test_a_command_that_does_not_exist_is_refused_with_the_reason(site: SessionSite) -> None:
    session_id, ticket = site.sandbox().session("no-such-command")

    async def scenario() -> None:
        async with site.opened(session_id, ticket) as person:
            heard = await person.all()
        assert heard.status["exit_code"] == 127
        assert "no-such-command" in heard.status["message"]

    asyncio.run(scenario())
    assert "no-such-command" in site.ended(session_id).end_reason


def test_the_processes_of_a_session_end_with_its_client(site: SessionSite) -> None:
    sandbox = site.sandbox()
    session_id, ticket = sandbox.session("sh", "-c", "sleep 1000 & echo $!; wait")

    async def scenario() -> int:
        async with site.opened(session_id, ticket) as person:
            return int(await person.until(b"\n"))

    pid = asyncio.run(scenario())
    assert site.ended(session_id).end_reason == "the client has closed the connection"
    site.wait_for(lambda: not Path(f"/proc/{pid}").exists() or _state(pid) == "Z")


def test_a_forwarded_connection_carries_bytes_and_the_end_of_either_side(site: SessionSite) -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(_echo_backwards, "127.0.0.1", 0)
        async with server:
            session_id, ticket = site.sandbox().forward(server.sockets[0].getsockname()[1])
            async with site.opened(session_id, ticket) as person:
                await person.connection.write_message(b"abc" * 20_000, binary=True)
                await person.connection.write_message(b"", binary=True)
                heard = await person.all()
        assert b"".join(heard.messages) == b"cba" * 20_000
        assert (heard.code, heard.reason) == (1000, "the port has closed the connection")

    asyncio.run(scenario())


def test_a_port_without_a_listener_closes_with_the_reason(site: SessionSite) -> None:
    session_id, ticket = site.sandbox().forward(9)

    async def scenario() -> None:
        async with site.opened(session_id, ticket) as person:
            heard = await person.all()
        assert heard.messages == []
        assert heard.code == 4000
        assert heard.reason == "nothing listens on port 9"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "a message begins with a channel"),
        (bytes([STATUS]) + b"{}", "nothing that clients send"),
        (bytes([9]) + b"x", "nothing that clients send"),
        (bytes([CLOSE, 1]), "clients can end channel 0 only"),
        (bytes([RESIZE]) + b"[1, 2]", 'a size is {"rows": 24, "columns": 80}'),
        (bytes([RESIZE]) + b'{"rows": 0, "columns": 80}', "whole numbers from 1 to 4096"),
        (bytes([RESIZE]) + b"[" * 200, 'a size is {"rows": 24, "columns": 80}'),
    ],
)
def test_what_is_no_message_of_the_protocol_ends_the_session(site: SessionSite, message: bytes, reason: str) -> None:
    session_id, ticket = site.sandbox().session("cat")

    async def scenario() -> None:
        async with site.opened(session_id, ticket) as person:
            await person.connection.write_message(message, binary=True)
            heard = await person.all()
        assert heard.code == 1002
        assert reason in heard.status["message"]

    asyncio.run(scenario())
    assert reason in site.ended(session_id).end_reason


def test_texts_and_messages_that_are_too_large_end_the_session(site: SessionSite) -> None:
    sandbox = site.sandbox()

    async def scenario(message: str | bytes) -> int | None:
        session_id, ticket = sandbox.session("cat")
        async with site.opened(session_id, ticket) as person:
            await person.connection.write_message(message, binary=isinstance(message, bytes))
            return (await person.all()).code

    assert asyncio.run(scenario("text")) == 1002
    assert asyncio.run(scenario(b"\0" + b"x" * 65537)) == 1009


def test_a_recorded_shell_is_kept_as_asciicast_without_what_was_typed(site: SessionSite) -> None:
    sandbox = site.sandbox()
    session_id, ticket = sandbox.session(kind="shell", recorded=True, rows=30, columns=100)

    async def scenario() -> None:
        async with site.opened(session_id, ticket) as person:
            await person.type("stty -echo; echo re''ady; read secret; stty echo\n")
            await person.until(b"ready\r\n")
            await person.type("hunter2\n")
            await person.say(RESIZE, json.dumps({"rows": 40, "columns": 120}).encode())
            await person.type("echo grüße; exit\n")
            await person.all()

    asyncio.run(scenario())
    site.ended(session_id)
    header, *events = site.recording(sandbox.job_id, session_id)
    assert (header["version"], header["width"], header["height"]) == (2, 100, 30)
    assert [120, "r", "120x40"][1:] in [each[1:] for each in events]
    shown = "".join(each[2] for each in events if each[1] == "o")
    assert "grüße\r\n" in shown
    assert "hunter2" not in shown
    times = [each[0] for each in events]
    assert times == sorted(times)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


async def _echo_backwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.read())[::-1])
    await writer.drain()
    writer.close()
