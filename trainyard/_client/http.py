"""HTTP requests to a Trainyard server with the standard library; error envelopes become exceptions."""

import http.client
import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard._client.errors import ApiError, ClientError, NoServer, Unreachable, api_error
from trainyard.protocol.json import JSON

LOOPBACK = ("127.0.0.1", "::1", "localhost")
Query = Iterable[tuple[str, Any]]


@dataclass(frozen=True)
class Content:
    """A body that is sent as it is read, so that a large file needs no memory."""

    kind: str
    size_bytes: int
    pieces: Iterable[bytes]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The standard handler would send our key along to any redirect target."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Transport:
    """Holds URL, key and project; opens responses. Safe to share between threads."""

    def __init__(self, url: str, key: str, timeout_seconds: float, *, project: str = "") -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no http:// or https:// URL of a Trainyard server")
        self.url = base_url(url)
        self._own_headers = {"Accept": "application/json"}
        if key:
            self._own_headers["Authorization"] = f"Bearer {key}"
        if project:
            self._own_headers["X-Project"] = project
        self._timeout_seconds = timeout_seconds
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        self._is_here = parts.hostname in LOOPBACK
        if self._is_here:  # a proxy cannot reach servers on this machine
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def json(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        most_seconds: float = float("inf"),
    ) -> JSON:
        """The ``data`` of the answer; None for an answer without a body. Raises ApiError and Unreachable.

        ``most_seconds`` limits the wait for a silent server, where the usual timeout is longer.
        """
        patience = min(most_seconds, self._timeout_seconds)
        with self.open(method, path, query=query, body=body, headers=headers, timeout_seconds=patience) as response:
            try:
                text = response.read()
                return json.loads(text)["data"] if text else None
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"the connection to {self.url} broke: {error}") from error
            except (ValueError, KeyError, TypeError) as error:
                raise ClientError(f"{self.url}{path} did not answer like a Trainyard server") from error

    def open(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, Any] | Content | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> http.client.HTTPResponse:
        """The open response, for reading a stream or a file from it. Raises ApiError and Unreachable."""
        request = self._request(method, path, query, body, headers or {})
        try:
            return self._opener.open(request, timeout=timeout_seconds or self._timeout_seconds)  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            detail = "no answer in time" if isinstance(reason, socket.timeout) else reason
            message = f"no Trainyard server at {self.url}: {detail}"
            if isinstance(error, urllib.error.URLError):  # the others come once there is a connection
                refused = isinstance(reason, ConnectionRefusedError)
                raise NoServer(message, refused_here=refused and self._is_here) from error
            raise Unreachable(message) from error

    def _request(
        self, method: str, path: str, query: Query, body: Mapping[str, Any] | Content | None, headers: Mapping[str, str]
    ) -> urllib.request.Request:
        pairs = list(query)
        url = self.url + path + ("?" + urllib.parse.urlencode(pairs) if pairs else "")
        sent = {**self._own_headers, **headers}
        request = urllib.request.Request(url, method=method, headers=sent)  # noqa: S310 – checked above
        if isinstance(body, Content):
            request.data = body.pieces
            request.add_header("Content-Type", body.kind)
            request.add_header("Content-Length", str(body.size_bytes))
        elif body is not None:
            request.data = json.dumps(body, allow_nan=False).encode()
            if not request.has_header("Content-type"):
                request.add_header("Content-Type", "application/json")
        return request


def base_url(url: str) -> str:
    """Without a final slash, and without the /v1 of the API, which clients of OpenAI want in their URLs."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def quote(part: str) -> str:
    """One segment of a path."""
    return urllib.parse.quote(part, safe="")


def _refusal(error: urllib.error.HTTPError) -> ApiError:
    with error:
        later = {"retry_after": error.headers.get("Retry-After")} if error.headers else {}
        try:
            envelope = json.loads(error.read())
            request_id = str((envelope.get("meta") or {}).get("request_id", ""))
            if envelope.get("kind") == "Status":  # the Kubernetes error format
                problem = {"code": envelope["reason"], "message": envelope["message"]}
                return api_error(error.code, {**later, **problem})
            return api_error(error.code, {**later, **envelope["error"]}, request_id=request_id)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException):
            problem = {"code": "INTERNAL", "message": f"the server answered {error.code}"}
            return api_error(error.code, {**later, **problem})
