"""Assigns each request an id and attaches it to the request's log lines and audit log entries."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from app.http.envelope import REQUEST_ID, new_request_id
from app.services.lifecycle import audit
from config.logging import log_context


class RequestIdMiddleware:
    """WSGI middleware around the whole application, so that errors are logged with the id as well.

    The context ends before a stream is sent: a generator must not leave its id in a pooled thread. Errors within a
    stream set the context themselves.
    """

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request_id = environ[REQUEST_ID] = new_request_id()
        origin = audit.RequestOrigin(request_id, environ.get("REMOTE_ADDR") or "")
        with log_context(request=request_id), audit.with_origin(origin):
            return self._application(environ, start_response)
