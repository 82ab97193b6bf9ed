"""Hands requests for the host of ports to an exchange, and all others to the gateway's application."""

import re
from typing import Any, cast

from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerConnectionDelegate,
    HTTPServerRequest,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.routing import Router

from app.gateway.interactive import port_refusals
from app.gateway.interactive.port_exchange import PortExchange
from app.gateway.interactive.ports_side import PortsSide

_PORTS = re.compile(r"/jobs/[^/]+/ports(/|$)")


class PortsRouter(Router):
    """What a server hands its requests to."""

    def __init__(self, side: PortsSide, application: HTTPServerConnectionDelegate) -> None:
        self._side = side
        self._application = application

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> HTTPMessageDelegate:
        del kwargs
        host = request.headers.get("Host", "")
        if self._side.host.serves(host):
            return PortExchange(self._side, request, self._side.host.meant(host, request.path))
        if _PORTS.match(request.path):
            return _Misdirected(self._side, request)
        connection = cast("HTTPConnection", request.connection)
        return self._application.start_request(request.server_connection or connection, connection)


class _Misdirected(HTTPMessageDelegate):
    def __init__(self, side: PortsSide, request: HTTPServerRequest) -> None:
        self._side, self._request = side, request

    def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        del start_line, headers
        port_refusals.answer(self._request, self._side.misdirected)
