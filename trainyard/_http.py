"""One HTTP request at a time to a Trainyard server, by the standard library; errors of the envelope as exceptions."""

import http.client
import json
import shutil
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ClientError(Exception):
    """A request did not succeed."""


class Unreachable(ClientError):
    """Nobody answers at the URL, or the connection broke; the only error that asking again may cure."""


class ApiError(ClientError):
    """The server refused; ``code`` is its machine-readable name, ``details`` name fields."""

    def __init__(self, status: int, error: Mapping[str, Any], *, request_id: str = "") -> None:
        self.status = status
        self.code = str(error.get("code", "INTERNAL"))
        self.message = str(error.get("message", f"the server answered {status}"))
        self.details: list[dict[str, str]] = list(error.get("details") or [])
        self.retry_after = error.get("retry_after")
        self.request_id = request_id
        # A single field's rule is the message itself: said once, and the field with it.
        told = [detail for detail in self.details if detail.get("message") != self.message]
        fields = [detail["field"] for detail in self.details if detail not in told and detail.get("field")]
        where = f" [{', '.join(fields)}]" if fields and not any(name in self.message for name in fields) else ""
        super().__init__("\n".join([f"{self.code}: {self.message}{where}", *map(_line, told)]))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The standard handler would send our key along to wherever it is told to go."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Transport:
    """Knows URL and key; opens responses."""

    def __init__(self, url: str, key: str, timeout_seconds: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no http:// or https:// URL of a Trainyard server")
        self.url = url.rstrip("/")
        self._key = key
        self._timeout_seconds = timeout_seconds
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if parts.hostname in LOOPBACK:  # a proxy for the outside world can't reach this machine's own servers
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def json(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, Any]] = (),
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The ``data`` of the answer; None for an answer without a body. Raises ApiError and Unreachable."""
        sent = {"Accept": "application/json", **(headers or {})}
        with self.open(method, path, query=query, body=body, headers=sent) as response:
            try:
                text = response.read()
                return json.loads(text)["data"] if text else None
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"the connection to {self.url} broke: {error}") from error
            except (ValueError, KeyError, TypeError) as error:
                raise ClientError(f"{self.url}{path} answered something that is no Trainyard answer") from error

    def save(self, path: str, to: Path) -> None:
        """Write the body of an answer to a file. Raises Unreachable when less arrives than was announced."""
        with self.open("GET", path) as response, to.open("wb") as file:
            announced = response.headers.get("Content-Length")  # type: ignore[attr-defined]
            try:
                shutil.copyfileobj(response, file)
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"the download of {path} broke: {error}") from error
            if announced is not None and file.tell() != int(announced):
                raise Unreachable(f"the download of {path} broke after {file.tell()} of {announced} bytes")

    def open(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, Any]] = (),
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> IO[bytes]:
        """The open response, for reading a stream or a file from it."""
        request = self._request(method, path, query, body, headers or {})
        try:
            return self._opener.open(request, timeout=timeout_seconds or self._timeout_seconds)  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            raise _api_error(error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            said = "no answer in time" if isinstance(reason, socket.timeout) else reason
            raise Unreachable(f"no Trainyard server at {self.url}: {said}") from error

    def _request(
        self,
        method: str,
        path: str,
        query: Iterable[tuple[str, Any]],
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> urllib.request.Request:
        pairs = [(name, value) for name, value in query if value not in (None, "")]
        url = self.url + path + ("?" + urllib.parse.urlencode(pairs) if pairs else "")
        request = urllib.request.Request(url, method=method, headers=dict(headers))  # noqa: S310 – checked above
        if self._key:
            request.add_header("Authorization", f"Bearer {self._key}")
        if body is not None:
            request.data = json.dumps(body, allow_nan=False).encode()
            request.add_header("Content-Type", "application/json")
        return request


def quote(part: str) -> str:
    """One segment of a path."""
    return urllib.parse.quote(part, safe="")


def _api_error(error: urllib.error.HTTPError) -> ApiError:
    with error:
        try:
            envelope = json.loads(error.read())
            return ApiError(error.code, envelope["error"], request_id=envelope.get("meta", {}).get("request_id", ""))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException):
            return ApiError(error.code, {"code": "INTERNAL", "message": f"the server answered {error.code}"})


def _line(detail: Mapping[str, str]) -> str:
    return f"  {detail.get('field', '')}: {detail.get('message', '')}"
