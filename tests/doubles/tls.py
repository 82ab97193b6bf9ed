"""TLS before a server that has none, as a reverse proxy gives it: some clients send no credentials without."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@contextmanager
def tls_before(port: int, folder: Path) -> Iterator[tuple[int, Path]]:
    """(port, certificate) of a server on the loopback that passes everything on to the other port."""
    certificate = self_signed(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = _Passing(listener, context, port)
        server.start()
        try:
            yield listener.getsockname()[1], certificate
        finally:
            server.end()


class _Passing(threading.Thread):
    def __init__(self, listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
        super().__init__()
        self._listener, self._context, self._port = listener, context, port
        self._ended = threading.Event()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        self._listener.settimeout(0.2)
        while not self._ended.is_set():
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                connection.settimeout(None)
                self._begin(self._pass_on, connection)

    def end(self) -> None:
        self._ended.set()
        self.join()
        for connection in self._open:  # clients keep some for later
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _begin(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _pass_on(self, connection: socket.socket) -> None:
        with (
            suppress(OSError),
            self._context.wrap_socket(connection, server_side=True) as client,
            socket.create_connection(("127.0.0.1", self._port)) as server,
        ):
            self._open += [client, server]
            self._begin(_copy, server, client)
            _copy(client, server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def self_signed(folder: Path, *names: str) -> Path:
    """A certificate of 127.0.0.1 and of these names, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainyard")])
    now = datetime.now(UTC)
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), *map(x509.DNSName, names)])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(addresses, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(private + built.public_bytes(serialization.Encoding.PEM))
    return path
