"""A directory of an HTTP drive service: files are uploaded with PUT and read back for verification."""

import functools
import http.client
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import BinaryIO
from urllib.parse import quote, urlsplit

from config.fetching import FetchSettings
from workers.fetching.tokens import share_url, token_for
from workers.fetching.uris import place
from workers.publishing.copying import MARKER, Arrived, digest_of
from workers.publishing.failures import AlreadyClaimed, NotPublished
from workers.publishing.orders import PublishedFile

BLOCK_BYTES = 1 << 20
ANSWER_SECONDS = 120.0
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
# Files that indicate a model; a service that accepts files need not list directories.
MODEL_INDICATORS = ("config.json", "adapter_config.json", "README.md", "model.safetensors")


def share(location: str, settings: FetchSettings, secrets: Mapping[str, str]) -> "WebTarget":
    """A directory of scaidrive:// or scaiatlas://, as the user who submitted the job. Raises FetchFailed."""
    where = place(location)
    base, token = share_url(where.scheme, settings), token_for(where.scheme, settings, secrets)
    url = f"{base}/{quote(where.container)}/{quote(where.path, safe='/%')}"
    return WebTarget(url, {"Authorization": f"Bearer {token}"})


class WebTarget:
    """``url`` is the directory's; ``headers`` carry the user's token. Redirects are not followed."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = urlsplit(url.rstrip("/"))
        self._headers = {"User-Agent": "trainyard", "Accept-Encoding": "identity", **headers}

    def check(self) -> None:
        """Check that the service accepts the user. Raises NotPublished."""
        with self._requesting("GET", self._at("", MARKER)):
            return

    def read(self, folder: str, path: str, most: int) -> bytes | None:
        with self._requesting("GET", self._at(folder, path)) as answer:
            return answer.read(most) if answer.status == http.client.OK else None

    def is_free(self, folder: str) -> bool:
        for name in MODEL_INDICATORS:
            with self._requesting("HEAD", self._at(folder, name)) as answer:
                if answer.status == http.client.OK:
                    return False
        return True

    def claim(self, folder: str, path: str, data: bytes) -> None:
        with self._requesting("PUT", self._at(folder, path), data, {"If-None-Match": "*"}) as answer:
            if answer.status == http.client.PRECONDITION_FAILED:
                raise AlreadyClaimed
            self._accept(answer)

    def write(self, folder: str, path: str, data: bytes) -> None:
        with self._requesting("PUT", self._at(folder, path), data) as answer:
            self._accept(answer)

    def put(self, folder: str, file: PublishedFile, source: BinaryIO, arrived: Arrived) -> None:
        length = {"Content-Length": str(file.size_bytes)}
        with self._requesting("PUT", self._at(folder, file.path), _ProgressReader(source, arrived), length) as answer:
            self._accept(answer)

    def digest(self, folder: str, path: str, arrived: Arrived) -> tuple[int, str] | None:
        with self._requesting("GET", self._at(folder, path)) as answer:
            if answer.status != http.client.OK:
                return None
            return digest_of(iter(functools.partial(answer.read, BLOCK_BYTES), b""), arrived)

    def remove(self, folder: str, path: str) -> None:
        with self._requesting("DELETE", self._at(folder, path)):
            return

    def _at(self, folder: str, path: str) -> str:
        return f"{self._url.path}/{quote(folder)}/{quote(path)}" if folder else f"{self._url.path}/{quote(path)}"

    def _accept(self, answer: http.client.HTTPResponse) -> None:
        if not 200 <= answer.status < 300:
            raise NotPublished(f"the service at {self._url.hostname} answers {answer.status} to an upload")

    def _let_in(self, status: int) -> None:
        host = self._url.hostname
        if status in (401, 403):
            raise NotPublished(
                f"the service at {host} refuses this user ({status}); submit with a token that may write there"
            )
        if status in PASSING:
            raise NotPublished(f"the service at {host} answers {status}", transient=True)

    @contextmanager
    def _requesting(
        self,
        method: str,
        path: str,
        body: "bytes | _ProgressReader | None" = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """One request and its answer; refused or failed ones raise NotPublished."""
        host = self._url.hostname or ""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(host, self._url.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, body=body, headers={**self._headers, **(headers or {})})
            with closing(connection.getresponse()) as answer:
                self._let_in(answer.status)
                yield answer
        except (OSError, http.client.HTTPException) as error:
            raise NotPublished(
                f"the service at {host} failed: {error or type(error).__name__}", transient=True
            ) from error
        finally:
            connection.close()


class _ProgressReader:
    """A file that reports how much of it was sent."""

    def __init__(self, stream: BinaryIO, arrived: Arrived) -> None:
        self._stream = stream
        self._arrived = arrived

    def read(self, count: int = -1) -> bytes:
        block = self._stream.read(count)
        self._arrived(len(block))
        return block
