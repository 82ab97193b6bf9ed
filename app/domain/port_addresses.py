"""Where browsers reach a port of a job: below a path of one host, or on a host of its own.

With ``http://jobs.localhost`` a port is at ``http://jobs.localhost/jobs/JOB/ports/NAME/``. With ``*.`` before the host
it is at ``http://NAME-ID.jobs.localhost/``, ID being that of the job without ``job-`` and hyphens: a label of a host
name has at most 63 characters, and names of ports have up to 30.
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

TOKEN = "trainyard_token"  # noqa: S105 – the name of the parameter of a URL that has the token of its port
_WILDCARD = "*."
_NAME = "[a-z0-9](?:[a-z0-9-]{0,28}[a-z0-9])?"
_PATH = re.compile(rf"/jobs/(job-[0-9a-f-]{{36}})/ports/({_NAME})(?=/|$)")
_LABEL = re.compile(rf"({_NAME})-([0-9a-f]{{8}})([0-9a-f]{{4}})([0-9a-f]{{4}})([0-9a-f]{{4}})([0-9a-f]{{12}})")


@dataclass(frozen=True, kw_only=True)
class PortAddress:
    """``origin`` has no slash at its end; ``prefix`` is the path below which the port is served, or empty."""

    job_id: str
    name: str
    origin: str
    prefix: str

    @property
    def url(self) -> str:
        return f"{self.origin}{self.prefix}/"

    @property
    def host(self) -> str:
        """As browsers send it."""
        return urlsplit(self.origin).netloc

    @property
    def is_secure(self) -> bool:
        return self.origin.startswith("https:")


class PortsHost:
    """What ``settings.gateway.ports_url`` means; false where it is empty."""

    def __init__(self, ports_url: str) -> None:
        parts = urlsplit(ports_url)
        self._scheme, self._netloc = parts.scheme, parts.netloc.lower()
        self._is_wild = self._netloc.startswith(_WILDCARD)
        self._netloc = self._netloc.removeprefix(_WILDCARD)
        self._name = _name_of(self._netloc)

    def __bool__(self) -> bool:
        return bool(self._netloc)

    @property
    def has_own_origins(self) -> bool:
        """Whether each port has an origin of its own."""
        return self._is_wild

    def serves(self, host: str) -> bool:
        """Whether a request with this Host header is meant for ports, whatever its path."""
        name = _name_of(host)
        return bool(self) and (name == self._name or name.endswith(f".{self._name}"))

    def address(self, job_id: str, name: str) -> PortAddress:
        """Where the port is reached."""
        if self._is_wild:
            label = f"{name}-{job_id.removeprefix('job-').replace('-', '')}"
            return PortAddress(job_id=job_id, name=name, origin=f"{self._scheme}://{label}.{self._netloc}", prefix="")
        origin = f"{self._scheme}://{self._netloc}"
        return PortAddress(job_id=job_id, name=name, origin=origin, prefix=f"/jobs/{job_id}/ports/{name}")

    def meant(self, host: str, path: str) -> PortAddress | None:
        """The port that a request for this host and path, both as they came, is meant for."""
        if not self.serves(host):
            return None
        if not self._is_wild:
            match = _PATH.match(path) if _name_of(host) == self._name else None
            return None if match is None else self.address(match[1], match[2])
        label = _LABEL.fullmatch(_name_of(host).removesuffix(f".{self._name}"))
        return None if label is None else self.address("job-" + "-".join(label.groups()[1:]), label[1])


def _name_of(host: str) -> str:
    """The name of a host header, without port."""
    name, _, port = host.lower().rpartition(":")
    return (name if name and (port.isdigit() or not port) else host.lower()).removesuffix(".")
