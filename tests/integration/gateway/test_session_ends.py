"""What ends an open session, how soon, and which reason its user and the audit trail get."""

import asyncio
import signal
import time
from collections.abc import Callable

import pytest

from app.models.base import utc_now
from tests.systems.session_sites import Heard, ServedSandbox, SessionSite
from trainyard.protocol.channel import short_address
from trainyard.protocol.interactive import SOCKET, STATUS

SOON = 2.5  # promised is a second; a busy machine may take longer


@pytest.fixture
def site(make_session_site: Callable[..., SessionSite]) -> SessionSite:
    site = make_session_site()
    site.serve()
    return site


def ended_by(site: SessionSite, sandbox: ServedSandbox, cause: Callable[[str], object]) -> tuple[str, Heard, float]:
    """Opens a session, and returns its reason, what was heard, and how long that took."""
    session_id, ticket = sandbox.session("sh", "-c", "echo ready; exec cat")

    async def scenario() -> tuple[Heard, float]:
        async with site.opened(session_id, ticket) as person:
            await person.until(b"ready")
            began = time.monotonic()
            await asyncio.to_thread(cause, session_id)
            heard = await person.all()
            return heard, time.monotonic() - began

    heard, seconds = asyncio.run(scenario())
    row = site.ended(session_id)
    assert len(site.ends(session_id)) == 1
    return row.end_reason, heard, seconds


def test_a_request_ends_it(site: SessionSite) -> None:
    reason, heard, seconds = ended_by(
        site, site.sandbox(), lambda each: site.set_session(each, end_requested_at=utc_now())
    )
    assert reason == "ended on request"
    assert (heard.code, heard.reason) == (4000, reason)
    assert heard.status == {"exit_code": None, "signal": None, "message": reason}
    assert seconds < SOON


def test_a_revoked_key_ends_it(site: SessionSite) -> None:
    reason, heard, seconds = ended_by(site, site.sandbox(), lambda _: site.revoke_key())
    assert "API key" in reason
    assert heard.reason == reason
    assert seconds < SOON


def test_the_projects_switch_ends_it(site: SessionSite) -> None:
    reason, _, seconds = ended_by(site, site.sandbox(), lambda _: site.set_project(sessions="off"))
    assert "switched sessions off" in reason
    assert seconds < SOON


@pytest.mark.parametrize(
    ("status", "why"), [("COMPLETED", "ended, COMPLETED"), ("PAUSED", "was paused"), ("QUEUED", "is QUEUED")]
)
def test_the_attempts_end_ends_it(site: SessionSite, status: str, why: str) -> None:
    sandbox = site.sandbox()
    reason, heard, seconds = ended_by(site, sandbox, lambda _: site.set_job(sandbox.job_id, status=status))
    assert why in reason
    assert heard.status["message"] == reason
    assert seconds < SOON


def test_a_sandbox_that_dies_first_ends_it_with_the_jobs_reason(site: SessionSite) -> None:
    sandbox = site.sandbox()

    def die(_: str) -> None:
        sandbox.kill()
        time.sleep(0.3)  # in which the platform has not noticed
        site.set_job(sandbox.job_id, status="FAILED", status_reason="its node was lost")

    reason, heard, _ = ended_by(site, sandbox, die)
    assert "FAILED: its node was lost" in reason
    assert heard.status["message"] == reason


def test_a_client_that_leaves_at_the_status_leaves_the_exit_code(site: SessionSite) -> None:
    sandbox = site.sandbox()
    sessions = [sandbox.session("sh", "-c", "exit 7") for _ in range(20)]

    async def leaves(session_id: str, ticket: str) -> None:
        connection = await site.connect(session_id, ticket)
        while (message := await connection.read_message()) is not None and message[0] != STATUS:
            pass
        connection.close()
        while await connection.read_message() is not None:
            pass

    async def scenario() -> None:
        await asyncio.gather(*(leaves(*each) for each in sessions))

    asyncio.run(scenario())
    rows = [site.ended(session_id) for session_id, _ in sessions]
    assert {(row.exit_code, row.end_reason) for row in rows} == {(7, "the command has ended with exit code 7")}


def test_a_hostile_session_server_ends_it_in_words(site: SessionSite) -> None:
    """A process of the job has taken its place, and says what no database takes."""
    sandbox = site.sandbox()
    place = site.folder / sandbox.job_id / SOCKET
    place.unlink()
    session_id, ticket = sandbox.session("true")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(
            b'{"type": "refused", "message": "a\\ud800b\\u0000\\u001b[2J", "exit_code": ' + b"9" * 400 + b"}\n"
        )
        await writer.drain()
        writer.close()

    async def scenario() -> Heard:
        with short_address(place) as address:
            server = await asyncio.start_unix_server(answer, address)
        async with server, site.opened(session_id, ticket) as person:
            return await person.all()

    heard = asyncio.run(scenario())
    assert heard.status == {"exit_code": None, "signal": None, "message": "a?b��[2J"}
    assert site.ended(session_id).end_reason == "a?b��[2J"


def test_a_session_server_that_is_another_one_now_ends_it_at_once_and_says_the_way_on(site: SessionSite) -> None:
    sandbox = site.sandbox()
    place = site.folder / sandbox.job_id / SOCKET
    place.unlink()
    session_id, ticket = sandbox.session("true")
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b'{"type": "started"}\n' if len(asked) == 1 else b'{"type": "refused"}\n')
        await writer.drain()
        writer.close()

    async def scenario() -> Heard:
        with short_address(place) as address:
            server = await asyncio.start_unix_server(answer, address)
        async with server, site.opened(session_id, ticket) as person:
            return await person.all()

    began = time.monotonic()
    heard = asyncio.run(scenario())
    assert heard.reason == (
        "the connection to the job's sandbox has broken; if the job still runs, open another session"
    )
    assert site.ended(session_id).end_reason == heard.reason
    assert time.monotonic() - began < SOON


def test_a_deleted_job_ends_it(site: SessionSite) -> None:
    sandbox = site.sandbox()
    session_id, ticket = sandbox.session("cat")

    async def scenario() -> Heard:
        async with site.opened(session_id, ticket) as person:
            await person.type("x")
            await person.until(b"x")
            await asyncio.to_thread(site.delete_job, sandbox.job_id)
            return await person.all()

    assert asyncio.run(scenario()).reason == "its job has been deleted"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["shell", "exec"])
def test_only_a_forgotten_terminal_is_ended_for_idleness(
    make_session_site: Callable[..., SessionSite], kind: str
) -> None:
    site = make_session_site(TRAINYARD_GATEWAY_SESSION_IDLE_SECONDS="1")
    site.serve()
    session_id, ticket = site.sandbox().session("sh", "-c", "sleep 3; exit 5", kind=kind)

    async def scenario() -> Heard:
        async with site.opened(session_id, ticket) as person:
            return await person.all()

    heard = asyncio.run(scenario())
    assert heard.status["exit_code"] == (5 if kind == "exec" else None)
    assert ("nothing was typed or shown for 1 s" in heard.status["message"]) is (kind == "shell")


@pytest.mark.long
def test_a_gateway_that_stops_lets_commands_end_and_then_ends_them(
    make_session_site: Callable[..., SessionSite],
) -> None:
    site = make_session_site(TRAINYARD_GATEWAY_DRAIN_SECONDS="2")
    process = site.serve_as_process()
    sandbox = site.sandbox()
    short, long = sandbox.session("sh", "-c", "echo ready; read x; sleep 0.5; exit 4"), sandbox.session("cat")

    async def scenario() -> tuple[Heard, Heard]:
        async with site.opened(*short) as first, site.opened(*long) as second:
            await first.until(b"ready")
            await second.type("x")
            await second.until(b"x")
            process.send_signal(signal.SIGTERM)
            await first.type("\n")
            return await first.all(), await second.all()

    first, second = asyncio.run(scenario())
    assert first.status["exit_code"] == 4
    assert second.status["message"] == "this gateway is stopping; open another session"
    assert second.code == 1001
    assert process.wait(10) == 0
    assert site.row(short[0]).exit_code == 4
    assert site.row(long[0]).end_reason == "this gateway is stopping; open another session"


def test_a_session_whose_sandbox_cannot_be_reached_says_so(site: SessionSite) -> None:
    sandbox = site.sandbox()
    sandbox.kill()
    session_id, ticket = sandbox.session("true")

    async def scenario() -> Heard:
        async with site.opened(session_id, ticket) as person:
            return await person.all()

    heard = asyncio.run(scenario())
    assert heard.status["exit_code"] is None
    assert "the node of the job cannot be reached" in heard.status["message"]
    assert heard.code == 4000
    assert "cannot be reached" in site.ended(session_id).end_reason
