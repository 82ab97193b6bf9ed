"""Refuses requests that gateways answer: by the host of ports, where pages of jobs are, and WebSockets of sessions."""

from functools import lru_cache

from flask import Flask, Response, request

from app.domain.port_addresses import PortsHost
from app.http.context import backend
from app.http.dialect import NATIVE
from app.http.errors import Misdirected, problem_of

SESSIONS = "/v1/sessions/"


def register(app: Flask) -> None:
    """Before authentication, so that no key and no session counts there."""
    app.before_request(_refuse)


def _refuse() -> Response | None:
    """In the native terms for every path: a page of the dashboard has no place there."""
    if _host(backend().settings.gateway.ports_url).serves(request.headers.get("Host", "")):
        why = "ports of jobs are at this host, on a gateway; the API and the dashboard are at another one"
    elif request.path.startswith(SESSIONS):
        why = _where_sessions_are(backend().settings.gateway.sessions_url)
    else:
        return None
    return NATIVE.failure(problem_of(Misdirected(why)))


def _where_sessions_are(url: str) -> str:
    if url:
        return f"a gateway serves sessions as WebSockets, at {url}; POST /v1/jobs/ID/sessions gives the address of each"
    return (
        f"a gateway serves sessions as WebSockets: have the proxy before the API send {SESSIONS} there, or set "
        "TRAINYARD_GATEWAY_SESSIONS_URL"
    )


_host = lru_cache(maxsize=8)(PortsHost)
