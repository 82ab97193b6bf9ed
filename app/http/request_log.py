"""Gives each request its id before anything else happens, and that id to every line logged or written to the audit
trail while it is served.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.http.envelope import REQUEST_ID, new_request_id
from app.services.lifecycle import audit
from config.logging import log_context

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class NamedRequests:
    """Around the whole application, so that errors are logged with the id as well.

    The context ends before a stream is sent: a generator must not leave its ids behind in a thread. What goes wrong in
    the middle of a stream names its request itself.
    """

    def __init__(self, application: "WSGIApplication") -> None:
        self._application = application

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        name = environ[REQUEST_ID] = new_request_id()
        origin = audit.Origin(name, environ.get("REMOTE_ADDR") or "")
        with log_context(request=name), audit.with_origin(origin):
            return self._application(environ, start_response)
