"""What a browser gets instead of an answer of a port: a status, and the reason in plain words."""

from http import HTTPStatus

from tornado.httputil import HTTPConnection, HTTPHeaders, ResponseStartLine

from app.domain.errors import Conflict, NotFound, TrainyardError, Unauthenticated
from app.domain.port_addresses import PortAddress
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


class Refused(Exception):
    """The request gets this answer instead of the job's; ``headers`` are added."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.http_status = status
        self.reason = reason
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def bad_request(reason: str) -> Refused:
    return Refused(400, reason)


def without_credentials(address: PortAddress) -> Refused:
    """The same whether or not the job exists."""
    return Refused(
        401,
        "this address needs a token, or the one that it had has expired; to get an address with a new one, run\n\n"
        f"    trainyard open {address.job_id} --port {address.name}\n\n"
        f"or ask the API: POST /v1/jobs/{address.job_id}/ports/{address.name}/url",
        WWW_Authenticate="Bearer",
    )


def refusal_of(error: TrainyardError, address: PortAddress) -> Refused:
    """The answer for an error of the services."""
    if isinstance(error, Unauthenticated):
        return without_credentials(address)
    if isinstance(error, NotFound):
        return Refused(404, error.message or NO_PORT)
    if isinstance(error, Conflict):  # the job waits, or has ended
        return Refused(503, error.message, Retry_After=str(_SOON_SECONDS))
    problem = problem_of(error)
    more = {} if problem.retry_after is None else {"Retry_After": str(problem.retry_after)}
    return Refused(problem.status, problem.named, **more)


def answer(connection: HTTPConnection, refused: Refused, *, has_content: bool = True) -> None:
    """Write the whole answer; ``has_content``: not to a HEAD request."""
    body = f"{refused.reason}\n".encode()
    headers = HTTPHeaders({**_HEADERS, **refused.headers, "Content-Length": str(len(body))})
    start = ResponseStartLine("HTTP/1.1", refused.http_status, phrase(refused.http_status))
    connection.write_headers(start, headers, body if has_content else None)
    connection.finish()


def phrase(status: int) -> str:
    """What stands behind a status; that of a job is not passed on."""
    return HTTPStatus(status).phrase
