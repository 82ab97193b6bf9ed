"""A Git repository behind HTTPS on loopback: `git http-backend`, as servers of organisations run it."""

import base64
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.doubles.tls import self_signed

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{who}_{what}": "tests@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


class GitServer:
    """``requests``: the paths that were asked for; ``private``: it wants a password, ``login``, if any opens it.

    ``received``: the logins that came; ``leads_to``: the address that it redirects to; ``says``: why it gives nothing.
    """

    def __init__(self, folder: Path, host: str) -> None:
        self.folder = folder / "repositories"
        self.certificate = self_signed(folder, host)
        self._host = host
        self.requests: list[str] = []
        self.private = False
        self.login = ""  # USER:PASSWORD
        self.received: list[str] = []
        self.leads_to = self.says = ""
        self.port = 0

    def url(self, name: str) -> str:
        return f"git+https://{self._host}:{self.port}/{name}.git"

    def commit(self, name: str, files: dict[str, str]) -> str:
        """Commit these files to the repository, which is made if it is not there; returns the commit."""
        repository, work = self.folder / f"{name}.git", self.folder / f"{name}-work"
        if not repository.exists():
            repository.mkdir(parents=True)
            self._git("init", "--quiet", "--bare", "--initial-branch=main", str(repository))
            self._git("clone", "--quiet", str(repository), str(work))
        for path, content in files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(content)
            (work / path).chmod(0o755 if path.endswith(".sh") else 0o644)
        self._git("-C", str(work), "add", "--all")
        self._git("-C", str(work), "commit", "--quiet", "--message=tests")
        self._git("-C", str(work), "push", "--quiet", "origin", "HEAD:main")
        return self._git("-C", str(work), "rev-parse", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        return subprocess.run(["git", *arguments], env=_ENVIRONMENT, check=True, capture_output=True, text=True).stdout


@contextmanager
def running_git_server(folder: Path, host: str = "127.0.0.1") -> Iterator[GitServer]:
    """``host``: what its certificate is for; it listens on the loopback."""
    server = GitServer(folder, host)

    class Handler(_Handler):
        known = server

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        server.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # clients miss an end of TLS after an answer without a length
    known: GitServer

    def do_GET(self) -> None:
        self._backend(b"")

    def do_POST(self) -> None:
        self._backend(self.rfile.read(int(self.headers["Content-Length"])))

    def _backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        self.known.requests.append(path)
        given = self.headers.get("Authorization", "")
        self.known.received += [given] if given else []
        if self.known.leads_to:
            self.send_response(302)
            self.send_header("Location", f"{self.known.leads_to}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        opens = self.known.login and given == f"Basic {base64.b64encode(self.known.login.encode()).decode()}"
        if self.known.private and not opens:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="private"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.known.says:
            self._refuse(f"ERR {self.known.says}")
            return
        environment = {
            **_ENVIRONMENT,
            "GIT_PROJECT_ROOT": str(self.known.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _refuse(self, line: str) -> None:
        content = f"001e# service=git-upload-pack\n0000{len(line) + 4:04x}{line}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Not to the tests' output."""
