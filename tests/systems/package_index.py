"""A package index on loopback, as PEP 503 describes it, with wheels and sources that it makes itself."""

import base64
import contextlib
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def wheel(
    name: str,
    version: str,
    code: str = "",
    *,
    needs: Sequence[str] = (),
    filler: int = 0,
    beside: Mapping[str, str] | None = None,
) -> bytes:
    """A wheel with one module; ``filler``: bytes of a file in it, ``beside``: texts of files beside it."""
    info = f"{name}-{version}.dist-info"
    requires = "".join(f"Requires-Dist: {each}\n" for each in needs)
    files = {
        f"{name}/__init__.py": (code or f"__version__ = '{version}'\n").encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files |= {path: text.encode() for path, text in (beside or {}).items()}
    if filler:
        files[f"{name}/filler.bin"] = bytes(filler)
    lines = [f"{path},sha256={_urlsafe(content)},{len(content)}" for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), content)
    return buffer.getvalue()


def source(name: str, version: str, backend: str) -> bytes:
    """A source distribution with a build backend of its own, ``backend``, which needs no other packages."""
    project = (
        f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "{name}"\n'
    )
    files = {
        "pyproject.toml": f'{project}version = "{version}"\n',
        "backend.py": backend,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


@dataclass
class Index:
    """Serves ``files``, by their names, below /simple/; ``asked`` are the paths of all requests."""

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    login: str = ""  # that it demands, user:password
    status: int = 200  # of every answer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/simple"

    def add(self, name: str, version: str, code: str = "", *, needs: Sequence[str] = (), filler: int = 0) -> str:
        """Returns a line for a lock."""
        content = wheel(name, version, code, needs=needs, filler=filler)
        self.files[f"{name}-{version}-py3-none-any.whl"] = content
        return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(content).hexdigest()}\n"

    def answer(self, path: str, authorization: str) -> tuple[int, bytes, str]:
        self.asked.append(path)
        self.authorizations.append(authorization)
        expected = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.login and authorization != expected:
            return 401, b"who are you?", "text/plain"
        if self.status != 200:
            return self.status, b"not now", "text/plain"
        *_, name = path.strip("/").split("/")
        if name in self.files:
            return 200, self.files[name], "application/octet-stream"
        found = [each for each in self.files if each.lower().startswith(f"{name.replace('-', '_')}-")]
        links = "".join(f'<a href="/files/{each}">{each}</a>' for each in found)
        return (
            (200, f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")
            if found
            else (404, b"", "")
        )


@contextlib.contextmanager
def package_index() -> Iterator[Index]:
    index = Index()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content, kind = index.answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if status == 401:
                self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # uv may read metadata alone
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 – a name of the library

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        index.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield index
        finally:
            server.shutdown()
            thread.join()


def _urlsafe(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
