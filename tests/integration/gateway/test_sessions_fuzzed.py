"""Any messages to the WebSocket of a session: it ends with a reason, and leaves nothing."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tornado.websocket import WebSocketClosedError

from tests.systems.session_sites import Heard, SessionSite
from tests.systems.system import wait_for
from trainyard.protocol.interactive import CLOSE, RESIZE, STDIN

SIZES = [
    b"",
    b"[" * 60_000,
    b"9" * 5000,
    b'{"rows":1e999,"columns":1}',
    b'{"rows":5}',
    b'{"rows":20,"columns":30}',
    b"\xff",
]
MESSAGES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=20),
    st.sampled_from(SIZES).map(lambda size: bytes([RESIZE]) + size),
    st.just(bytes([STDIN]) + b"line\n"),
    st.just(bytes([STDIN]) + b"x" * (64 << 10)),
    st.just(bytes([STDIN]) + b"x" * (65 << 10)),
    st.just(bytes([CLOSE, STDIN])),
)


@pytest.fixture
def site(make_session_site: Callable[..., SessionSite]) -> SessionSite:
    site = make_session_site()
    site.serve()
    return site


@pytest.mark.long
@pytest.mark.parametrize("kind", ["exec", "shell"])
def test_whatever_comes_ends_in_words_and_leaves_nothing(site: SessionSite, kind: str) -> None:
    sandbox = site.sandbox()
    server = psutil.Process(sandbox.pid)
    asyncio.run(_said(site, *sandbox.session("cat"), []))
    wait_for(lambda: not server.children(), seconds=15, what="it has started, and nothing runs")
    before = server.num_fds()

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(MESSAGES, max_size=6))
    def holds(messages: list[bytes | str]) -> None:
        session_id, ticket = sandbox.session("cat", kind=kind)

        heard = asyncio.run(_said(site, session_id, ticket, messages))

        row = site.ended(session_id)
        assert row.end_reason
        assert heard.code in (1000, 1002, 1009, 4000, None), heard.reason
        assert len(site.ends(session_id)) == 1

    holds()

    wait_for(lambda: not server.children(), seconds=15, what="nothing runs")
    wait_for(lambda: server.num_fds() <= before, seconds=15, what="nothing is open")
    assert Path(f"/proc/{sandbox.pid}").is_dir()


async def _said(site: SessionSite, session_id: str, ticket: str, messages: list[bytes | str]) -> Heard:
    async with site.opened(session_id, ticket) as person:
        with contextlib.suppress(WebSocketClosedError):
            for message in messages:
                await person.connection.write_message(message, binary=isinstance(message, bytes))
            await person.end_input()  # twice is a breach, too
            await person.end_input()
        return await person.all()
