"""Where a client of the gateway is."""

from tornado.httputil import HTTPServerRequest


def address_of(request: HTTPServerRequest, proxies: int) -> str:
    """Who asks: only what so many proxies have added is believed."""
    forwarded = request.headers.get("X-Forwarded-For", "").split(",")
    if 0 < proxies <= len(forwarded) and (found := forwarded[-proxies].strip()):
        return found
    return request.remote_ip or ""
