"""What a client gets instead of an answer of a port: a status, and the reason in plain words, or as a page."""

from http import HTTPStatus
from typing import cast

from tornado.httputil import HTTPConnection, HTTPHeaders, HTTPServerRequest, ResponseStartLine

from app.domain.errors import Conflict, NotFound, TrainyardError, Unauthenticated
from app.domain.port_addresses import PortAddress
from app.gateway.interactive import port_refusal_page
from app.http.errors import problem_of

_HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
}
NO_PORT = "there is no such port, or you may not open it"
_SOON_SECONDS = 2


class PortRefused(Exception):
    """The request gets this answer instead of the job's; ``headers`` are added.

    ``way_in``: the address where the dashboard opens the port.
    """

    def __init__(self, status: int, reason: str, *, way_in: str = "", **headers: str) -> None:
        super().__init__(reason)
        self.http_status = status
        self.reason = reason
        self.way_in = way_in
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def bad_request(reason: str) -> PortRefused:
    return PortRefused(400, reason)


def without_credentials(address: PortAddress, *, dashboard: str) -> PortRefused:
    """The same whether or not the job exists."""
    way_in = f"{dashboard.rstrip('/')}/ui/jobs/{address.job_id}/access" if dashboard else ""
    return PortRefused(
        401,
        "this address needs a token, or the one that it had has expired; to get an address with a new one, run\n\n"
        f"    trainyard open {address.job_id} --port {address.name}\n\n"
        f"or ask the API\n\n    POST /v1/jobs/{address.job_id}/ports/{address.name}/url",
        way_in=way_in,
        WWW_Authenticate="Bearer",
    )


def refusal_of(error: TrainyardError, address: PortAddress, *, dashboard: str) -> PortRefused:
    """The answer for an error of the services; ``dashboard`` is its address, if any."""
    if isinstance(error, Unauthenticated):
        return without_credentials(address, dashboard=dashboard)
    if isinstance(error, NotFound):
        return PortRefused(404, error.message or NO_PORT)
    if isinstance(error, Conflict):  # the job waits, or has ended
        return PortRefused(503, error.message, Retry_After=str(_SOON_SECONDS))
    problem = problem_of(error)
    more = {} if problem.retry_after is None else {"Retry_After": str(problem.retry_after)}
    return PortRefused(problem.status, problem.named, **more)


def answer(request: HTTPServerRequest, refused: PortRefused) -> None:
    """Write the whole answer, on the connection of the request."""
    status, headers = refused.http_status, {**_HEADERS, **refused.headers}
    way_in = f"\n\nor open it from the dashboard\n\n    {refused.way_in}" if refused.way_in else ""
    body = f"{refused.reason}{way_in}\n".encode()
    if refused.reason and port_refusal_page.wants_page(request.headers):
        body = port_refusal_page.page(status, refused.reason, way_in=refused.way_in).encode()
        headers |= {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": port_refusal_page.POLICY}
    connection = cast("HTTPConnection", request.connection)
    start = ResponseStartLine("HTTP/1.1", status, phrase(status))
    sent = HTTPHeaders({**headers, "Content-Length": str(len(body))})
    connection.write_headers(start, sent, body if request.method != "HEAD" else None)
    connection.finish()


def phrase(status: int) -> str:
    """What stands behind a status; that of a job is not passed on."""
    return HTTPStatus(status).phrase
