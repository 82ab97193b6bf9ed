"""nginx and Caddy with the files of deploy/, in which only addresses, certificates and logs are this machine's."""

import http.client
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.doubles.tls import self_signed
from tests.systems.servers import free_port
from tests.systems.system import wait_for

DEPLOY = Path(__file__).parents[2] / "deploy"
API, JOBS = "trainyard.example.com", "trainyard-jobs.example.net"
SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Proxy:
    port: int
    folder: Path

    def connection(self, host: str) -> http.client.HTTPSConnection:
        """A connection as a client has that looked up this name."""
        made = http.client.HTTPSConnection(host, self.port, timeout=SECONDS)
        made.sock = self._connected(host)
        return made

    def protocol_of_browsers(self, host: str) -> str | None:
        """What it chooses of the protocols that browsers offer."""
        with self._connected(host, "h2", "http/1.1") as connected:
            return connected.selected_alpn_protocol()

    def _connected(self, host: str, *protocols: str) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if protocols:
            context.set_alpn_protocols(protocols)
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
        return context.wrap_socket(plain, server_hostname=host)

    def logged(self) -> str:
        """All that it has written into logs."""
        return "".join(path.read_text() for path in self.folder.glob("*.log"))


@contextmanager
def proxy(kind: str, folder: Path, *, api: int, gateway: int, listens: int) -> Iterator[Proxy]:
    """``kind``: nginx or caddy; ports of the API and of a gateway of this machine, and its own."""
    program = shutil.which(kind)
    assert program is not None, f"no {kind} on the PATH: scripts/install-system-packages"
    folder.mkdir()
    certificate = self_signed(folder)
    command = _STARTED[kind](folder, certificate, {"8000": api, "8001": gateway, "443": listens})
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    with (folder / "said.log").open("wb") as said:
        process = subprocess.Popen([program, *command], stdout=said, stderr=said, env=environment, cwd=folder)
    try:
        wait_for(lambda: _listens(listens) or process.poll() is not None, seconds=SECONDS, what=f"{kind} listens")
        assert process.poll() is None, (folder / "said.log").read_text()
        yield Proxy(port=listens, folder=folder)
    finally:
        process.terminate()
        try:
            process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def _nginx(folder: Path, certificate: Path, ports: Mapping[str, int]) -> list[str]:
    text = (DEPLOY / "nginx/trainyard.conf").read_text()
    for name in ("fullchain", "privkey"):
        for host in (API, JOBS):
            text = _replaced(text, f"/etc/letsencrypt/live/{host}/{name}.pem", str(certificate))
    text = _replaced(text, "listen 443 ssl", f"listen 127.0.0.1:{ports['443']} ssl")
    text = _replaced(text, "listen 80;", f"listen 127.0.0.1:{free_port()};")
    text = _replaced(text, "/var/log/nginx/", f"{folder}/")
    for usual in ("8000", "8001"):
        text = _replaced(text, f"127.0.0.1:{usual}", f"127.0.0.1:{ports[usual]}")
    places = "".join(
        f"{each}_temp_path {folder}/{each};\n" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log {folder}/access.log;\n{places}{text}\n}}\n"
    )
    return ["-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]


def _caddy(folder: Path, certificate: Path, ports: Mapping[str, int]) -> list[str]:
    text = (DEPLOY / "caddy/Caddyfile").read_text()
    files = f"tls {certificate} {certificate}"
    text = _replaced(text, f"{API} {{\n", f"{API} {{\n\t{files}\n")  # Caddy would ask an authority for a certificate
    text = _replaced(text, "tls /etc/caddy/trainyard-jobs.pem /etc/caddy/trainyard-jobs.key", files)
    for usual in ("8000", "8001"):
        text = _replaced(text, f"127.0.0.1:{usual}", f"127.0.0.1:{ports[usual]}")
    options = f"{{\n\tadmin off\n\tauto_https disable_redirects\n\thttps_port {ports['443']}\n}}\n"
    (folder / "Caddyfile").write_text(options + text)
    return ["run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


_STARTED: Mapping[str, Callable[[Path, Path, Mapping[str, int]], list[str]]] = {"nginx": _nginx, "caddy": _caddy}


def _replaced(text: str, old: str, new: str) -> str:
    assert old in text, f"the file of deploy/ has no {old!r} any more"
    return text.replace(old, new)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
