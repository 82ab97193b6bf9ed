"""A gateway before real session servers behind real relays, and the WebSockets of people."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from app.database.engine import Database
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, InteractiveEndpoint, InteractiveSession, Job, Project
from app.security import signed_tokens
from app.security.permissions import Role
from app.security.relay_tokens import interactive_token
from app.security.secrets import SecretBox
from app.services.access import api_keys
from app.services.attempts.interactive_endpoints import local_socket
from app.services.interactive.attending import TICKET_PURPOSE, TICKET_SECONDS
from app.storage.storage import Storage
from tests.builders.factories import make_job, make_project
from tests.systems.apps import SECRET_KEY
from tests.systems.gateways import ROOT, SECONDS, GatewaySite
from trainyard.protocol.interactive import CLOSE, PROTOCOL, SOCKET, STATUS, STDERR, STDIN, STDOUT
from workers.supervisor.serving.relay_process import RelayPlace, RelayProcess

FENCE = 7


class SessionSite(GatewaySite):
    """The rows of running jobs, their session servers and relays, and a gateway."""

    is_nearby = False  # whether relays listen on a Unix socket, too, as those of the gateway's machine do

    def __init__(self, database: Database, folder: Path, **settings: str) -> None:
        super().__init__(database, folder, **settings)
        with database.write() as session:
            make_project(session)
        self.person = api_keys.create(database, SecretBox(SECRET_KEY), role=Role.USER, project="default").row.id

    def sandbox(self, **columns: Any) -> "ServedSandbox":
        """A running job of one rank whose session server runs."""
        with self.db.write() as session:
            job = make_job(session, state=JobState.TRAINING, attempt=1, fence=FENCE, **columns)
        folder = self.folder / job.id
        folder.mkdir()
        sandbox = ServedSandbox(self, job.id, folder)
        self._started.callback(sandbox.kill)
        return sandbox

    def set_project(self, **columns: Any) -> None:
        self._set(Project, "default", columns)

    def set_job(self, job_id: str, **columns: Any) -> None:
        self._set(Job, job_id, columns)

    def set_session(self, session_id: str, **columns: Any) -> None:
        self._set(InteractiveSession, session_id, columns)

    def delete_job(self, job_id: str) -> None:
        with self.db.write() as session:
            session.delete(session.get_one(Job, job_id))

    def row(self, session_id: str) -> InteractiveSession:
        with self.db.read() as session:
            return session.get_one(InteractiveSession, session_id)

    def ended(self, session_id: str) -> InteractiveSession:
        """Its row once it has ended."""
        self.wait_for(lambda: self.row(session_id).ended_at is not None)
        return self.row(session_id)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it has not happened"
            time.sleep(0.02)

    def ends(self, session_id: str) -> list[AuditEntry]:
        """The lines of the audit trail about its end."""
        with self.db.read() as session:
            query = select(AuditEntry).where(AuditEntry.action == "session.end")
            return [each for each in session.scalars(query) if each.data["session"] == session_id]

    def recording(self, job_id: str, session_id: str) -> list[Any]:
        """Its lines."""
        storage = Storage(self.settings.storage.url)
        folder = f"jobs/{job_id}/sessions/{session_id}"
        content = b""
        for name in sorted(storage.names(folder)):
            with storage.open(f"{folder}/{name}") as piece:
                content += piece.read()
        return [json.loads(line) for line in content.splitlines()]

    def address(self, session_id: str) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/sessions/{session_id}/stream"

    async def connect(
        self, session_id: str, ticket: str, *, protocol: str = PROTOCOL, **headers: str
    ) -> WebSocketClientConnection:
        """Raises HTTPClientError when it is refused. tornado reads a message only when it is asked for."""
        given = {"Authorization": f"Bearer {ticket}", **headers}
        request = HTTPRequest(self.address(session_id), headers=given, request_timeout=SECONDS)
        return await websocket_connect(request, subprotocols=[protocol], max_message_size=1 << 20)

    @asynccontextmanager
    async def opened(self, session_id: str, ticket: str) -> AsyncIterator["Person"]:
        person = Person(await self.connect(session_id, ticket))
        try:
            yield person
        finally:
            await person.leave()

    def _set(self, model: Any, key: str, columns: dict[str, Any]) -> None:
        with self.db.write() as session:
            row = session.get_one(model, key)
            for column, value in columns.items():
                setattr(row, column, value)


class ServedSandbox:
    """A session server in a folder of its own, with its relay and its endpoint."""

    def __init__(self, site: SessionSite, job_id: str, folder: Path) -> None:
        self._site = site
        self.job_id = job_id
        place = folder / SOCKET
        self._server = session_server(place, folder)
        self.pid = self._server.pid
        token = interactive_token(SECRET_KEY, job_id=job_id, attempt=1, fence=FENCE, part=0)
        self._relay = RelayProcess()
        local = local_socket(site.settings.data.dir, job_id, 1, 0) if site.is_nearby else None
        if local is not None:
            local.parent.mkdir(parents=True, mode=0o700)
        self._relay.start(RelayPlace(address="127.0.0.1", socket=place, token=token, local=local))
        with site.db.write() as session:
            session.add(
                InteractiveEndpoint(
                    job_id=job_id,
                    part=0,
                    attempt=1,
                    fence=FENCE,
                    first_rank=0,
                    ranks=1,
                    address="127.0.0.1",
                    port=self._relay.port(),
                )
            )

    def session(self, *command: str, kind: str = "exec", recorded: bool = False, **request: Any) -> tuple[str, str]:
        """Its id and ticket."""
        asked = {"type": "exec", "rank": 0, "command": list(command), "tty": kind == "shell", **request}
        return self._session(kind, asked, recorded=recorded)

    def forward(self, port: int) -> tuple[str, str]:
        return self._session("port_forward", {"type": "connect", "port": port})

    def kill(self) -> None:
        """As the kernel does with the sandbox of an attempt."""
        self._server.kill()
        self._server.wait()
        self._relay.close(hurries=True)

    def _session(self, kind: str, request: dict[str, Any], *, recorded: bool = False) -> tuple[str, str]:
        with self._site.db.write() as session:
            row = InteractiveSession(
                id=new_id("session"),
                job_id=self.job_id,
                attempt=1,
                kind=kind,
                request=request,
                created_by=self._site.person,
                recorded=recorded,
            )
            session.add(row)
            return row.id, ticket_of(row.id)


class Person:
    """One end of a session's WebSocket."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection = connection
        self._is_over = False

    async def leave(self) -> None:
        """Close, and wait for the gateway's close."""
        self.connection.close()
        while not self._is_over:
            await self.hear()

    async def say(self, channel: int, data: bytes = b"") -> None:
        await self.connection.write_message(bytes([channel]) + data, binary=True)

    async def type(self, text: str) -> None:
        await self.say(STDIN, text.encode())

    async def end_input(self) -> None:
        await self.say(CLOSE, bytes([STDIN]))

    async def hear(self) -> bytes | None:
        """The next message; None: the WebSocket is closed."""
        async with asyncio.timeout(SECONDS):
            message = await self.connection.read_message()
        self._is_over = message is None
        assert not isinstance(message, str)
        return message

    async def until(self, text: bytes) -> bytes:
        """Output up to this text."""
        heard = b""
        while text not in heard:
            message = await self.hear()
            assert message is not None, f"closed: {self.connection.close_reason}, after {heard!r}"
            if message[0] in (STDOUT, STDERR):
                heard += message[1:]
        return heard

    async def all(self) -> "Heard":
        """What comes until the end."""
        heard = Heard()
        while (message := await self.hear()) is not None:
            heard.messages.append(message)
        heard.code, heard.reason = self.connection.close_code, self.connection.close_reason
        return heard


class Heard:
    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.code: int | None = None
        self.reason: str | None = None

    def of(self, channel: int) -> bytes:
        return b"".join(each[1:] for each in self.messages if each[0] == channel)

    @property
    def stdout(self) -> bytes:
        return self.of(STDOUT)

    @property
    def status(self) -> Any:
        """That of the last message."""
        assert self.messages[-1][0] == STATUS
        return json.loads(self.messages[-1][1:])


def ticket_of(session_id: str, *, seconds: int = TICKET_SECONDS) -> str:
    return signed_tokens.issue(SECRET_KEY, TICKET_PURPOSE, session_id, seconds=seconds)


def session_server(place: Path, folder: Path) -> "subprocess.Popen[bytes]":
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "SHELL": "/bin/sh", "PS1": "$ "}
    with socket.socket(socket.AF_UNIX) as listener:
        directory = os.open(place.parent, os.O_PATH | os.O_DIRECTORY)
        listener.bind(f"/proc/self/fd/{directory}/{place.name}")  # the path itself may be too long
        os.close(directory)
        listener.listen(256)
        command = [sys.executable, "-m", "workers.rank.sessions", str(listener.fileno())]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env={"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "PATH": os.environ["PATH"]},
        )
    assert process.stdin is not None
    with process.stdin:
        configuration = {"environments": {"0": environment}, "directory": str(folder), "directories": {}}
        process.stdin.write(json.dumps(configuration).encode())
    return process
