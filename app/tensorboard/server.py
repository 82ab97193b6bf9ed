"""Passes requests on to the TensorBoard of the job that the token is for."""

import logging
from http.client import responses
from typing import Any
from urllib.parse import urlencode, urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse
from tornado.web import Application, RequestHandler

from app.domain.errors import CredentialsInvalid, TrainyardError
from app.services.telemetry import tensorboards
from app.tensorboard.boards import Boards, NoTensorBoard
from config.settings import Settings

ANSWER_SECONDS = 60.0
logger = logging.getLogger(__name__)
_COOKIE = "trainyard-tensorboard"
_ASKED = ("Accept", "Accept-Encoding", "Content-Type", "If-None-Match", "If-Modified-Since")
_ANSWERED = (
    "Content-Type", "Content-Encoding", "Content-Security-Policy", "Cache-Control", "ETag", "Expires", "Last-Modified",
    "Vary", "X-Content-Type-Options",
)  # fmt: skip


def application(settings: Settings, boards: Boards) -> Application:
    """`/JOB/…` is that job's; `/health` says that the server lives."""
    shared = {"settings": settings, "boards": boards}
    routes: list[Any] = [(r"/health", HealthHandler), (r"/([^/]+)(/.*)?", BoardHandler, shared)]
    return Application(routes, log_function=lambda _: None)  # what is asked for has tokens in it


class HealthHandler(RequestHandler):
    def get(self) -> None:
        self.write({"status": "live"})


class BoardHandler(RequestHandler):
    """The token comes once as `?token=`, which sets a cookie, or each time in the header Authorization."""

    def initialize(self, settings: Settings, boards: Boards) -> None:
        self._settings = settings
        self._boards = boards

    async def get(self, job_id: str, path: str | None) -> None:
        await self._answer(job_id, path)

    async def post(self, job_id: str, path: str | None) -> None:
        await self._answer(job_id, path)

    def check_xsrf_cookie(self) -> None:
        """Nothing here changes anything: TensorBoard asks some of its questions by POST."""

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        logger.error("a request failed", exc_info=(typ, value, tb))

    async def _answer(self, job_id: str, path: str | None) -> None:
        if not tensorboards.is_job(job_id):
            self._refuse(404, "no such job")
            return
        if not self._may_see(job_id):
            self._refuse(401, "open it with ?token= and the token that the job's description has; it is good for a day")
            return
        arguments = [(name, value) for name in self.request.query_arguments for value in self.get_query_arguments(name)]
        kept = [(name, value) for name, value in arguments if name != "token"]
        asked = self.request.path.removeprefix(f"/{job_id}") or "/"  # as it was written: nothing in it is decoded
        here = asked + (f"?{urlencode(kept)}" if kept else "")
        if path is None or len(kept) < len(arguments):
            self._remember(job_id)
            self.redirect(self._base_of(job_id) + here)
            return
        await self._pass_on(job_id, here)

    def _base_of(self, job_id: str) -> str:
        """As browsers have it: a proxy may have taken off what stands before."""
        return f"{urlsplit(self._settings.tensorboard.url).path.rstrip('/')}/{job_id}"

    def _may_see(self, job_id: str) -> bool:
        try:
            return tensorboards.job_of(self._settings, self._token()) == job_id
        except CredentialsInvalid:
            return False

    def _token(self) -> str:
        scheme, _, key = self.request.headers.get("Authorization", "").partition(" ")
        header = key.strip() if scheme.lower() == "bearer" else ""
        return self.get_query_argument("token", "") or header or self.get_cookie(_COOKIE, "") or ""

    def _remember(self, job_id: str) -> None:
        """In a cookie of this job's pages alone; afterwards the token is in no address any more."""
        if token := self.get_query_argument("token", ""):
            self.set_cookie(
                _COOKIE, token, path=f"{self._base_of(job_id)}/", expires_days=1, httponly=True, samesite="Lax",
                secure=self._settings.tensorboard.url.startswith("https:"),
            )  # fmt: skip

    async def _pass_on(self, job_id: str, asked: str) -> None:
        try:
            answer = await self._answer_of(job_id, asked)
        except (TrainyardError, NoTensorBoard, OSError, HTTPClientError) as error:
            self._refuse(503, f"TensorBoard does not answer: {error}")
            return
        self.set_status(answer.code if answer.code in responses else 503)
        for name in _ANSWERED:
            if name in answer.headers:
                self.set_header(name, answer.headers[name])
        self.finish(answer.body or None)

    async def _answer_of(self, job_id: str, asked: str) -> HTTPResponse:
        address = await self._boards.address(job_id)
        try:
            return await self._fetched(address + asked)
        except (OSError, HTTPClientError):
            if not await self._boards.ended(job_id, address):
                raise
        return await self._fetched(await self._boards.address(job_id) + asked)

    async def _fetched(self, url: str) -> HTTPResponse:
        headers = {name: self.request.headers[name] for name in _ASKED if name in self.request.headers}
        method = str(self.request.method)
        asked = HTTPRequest(
            url, method, headers, self.request.body if method == "POST" else None, follow_redirects=False,
            decompress_response=False, request_timeout=ANSWER_SECONDS,
        )  # fmt: skip
        return await AsyncHTTPClient().fetch(asked, raise_error=False)

    def _refuse(self, status: int, why: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{why}\n")
