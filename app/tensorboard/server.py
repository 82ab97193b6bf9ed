"""Proxies requests to the TensorBoard of the job that the token is for."""

import logging
from http.client import responses
from types import TracebackType
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
_REQUEST_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "If-None-Match", "If-Modified-Since")
_RESPONSE_HEADERS = (
    "Content-Type",
    "Content-Encoding",
    "Content-Security-Policy",
    "Cache-Control",
    "ETag",
    "Expires",
    "Last-Modified",
    "Vary",
    "X-Content-Type-Options",
)


def application(settings: Settings, boards: Boards) -> Application:
    """`/JOB/…` is the job's TensorBoard; `/health` is the liveness check."""
    shared = {"settings": settings, "boards": boards}
    routes: list[Any] = [(r"/health", HealthHandler), (r"/([^/]+)(/.*)?", BoardHandler, shared)]
    return Application(routes, log_function=lambda _: None)  # no access log: URLs contain tokens


class HealthHandler(RequestHandler):
    def get(self) -> None:
        self.write({"status": "live"})


class BoardHandler(RequestHandler):
    """Accepts the token once as `?token=`, which sets a cookie, or in each request's Authorization header."""

    def initialize(self, settings: Settings, boards: Boards) -> None:
        self._settings = settings
        self._boards = boards
        self._name = ""  # of the job, by its token

    async def get(self, job_id: str, path: str | None) -> None:
        await self._answer(job_id, path)

    async def post(self, job_id: str, path: str | None) -> None:
        await self._answer(job_id, path)

    def check_xsrf_cookie(self) -> None:
        """No XSRF check: no request changes state; TensorBoard uses POST for some queries."""

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        del typ, tb
        logger.error("a request failed", exc_info=value)

    async def _answer(self, job_id: str, path: str | None) -> None:
        if not tensorboards.is_job(job_id):
            self._refuse(404, "no such job")
            return
        if not self._may_see(job_id):
            self._refuse(401, "add ?token= with the token from GET /v1/jobs/JOB/tensorboard; it is valid for one day")
            return
        arguments = [(name, value) for name in self.request.query_arguments for value in self.get_query_arguments(name)]
        forwarded = [(name, value) for name, value in arguments if name != "token"]
        target = self.request.path.removeprefix(f"/{job_id}") or "/"  # undecoded
        target += f"?{urlencode(forwarded)}" if forwarded else ""
        if path is None or len(forwarded) < len(arguments):
            self._set_token_cookie(job_id)
            self.redirect(self._base_of(job_id) + target)
            return
        await self._proxy(job_id, target)

    def _base_of(self, job_id: str) -> str:
        """The external base path: a reverse proxy may have stripped its prefix."""
        return f"{urlsplit(self._settings.tensorboard.url).path.rstrip('/')}/{job_id}"

    def _may_see(self, job_id: str) -> bool:
        try:
            shown = tensorboards.job_of(self._settings, self._token())
        except CredentialsInvalid:
            return False
        self._name = shown.name
        return shown.job_id == job_id

    def _token(self) -> str:
        scheme, _, key = self.request.headers.get("Authorization", "").partition(" ")
        header = key.strip() if scheme.lower() == "bearer" else ""
        return self.get_query_argument("token", "") or header or self.get_cookie(_COOKIE, "") or ""

    def _set_token_cookie(self, job_id: str) -> None:
        """Store the token in a cookie for this job's pages only, so that it disappears from URLs."""
        if token := self.get_query_argument("token", ""):
            self.set_cookie(
                _COOKIE,
                token,
                path=f"{self._base_of(job_id)}/",
                expires_days=1,
                httponly=True,
                samesite="Lax",
                secure=self._settings.tensorboard.url.startswith("https:"),
            )

    async def _proxy(self, job_id: str, target: str) -> None:
        try:
            answer = await self._response_of(job_id, target)
        except (TrainyardError, NoTensorBoard, OSError, HTTPClientError) as error:
            self._refuse(503, f"TensorBoard does not answer: {error}")
            return
        self.set_status(answer.code if answer.code in responses else 503)
        for name in _RESPONSE_HEADERS:
            if name in answer.headers:
                self.set_header(name, answer.headers[name])
        self.finish(answer.body or None)

    async def _response_of(self, job_id: str, target: str) -> HTTPResponse:
        address = await self._boards.address(job_id, self._name)
        try:
            return await self._fetched(address + target)
        except (OSError, HTTPClientError):
            if not await self._boards.ended(job_id, address):
                raise
        return await self._fetched(await self._boards.address(job_id, self._name) + target)

    async def _fetched(self, url: str) -> HTTPResponse:
        headers = {name: self.request.headers[name] for name in _REQUEST_HEADERS if name in self.request.headers}
        method = str(self.request.method)
        proxied = HTTPRequest(
            url,
            method,
            headers,
            self.request.body if method == "POST" else None,
            follow_redirects=False,
            decompress_response=False,
            request_timeout=ANSWER_SECONDS,
        )
        return await AsyncHTTPClient().fetch(proxied, raise_error=False)

    def _refuse(self, status: int, why: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{why}\n")
