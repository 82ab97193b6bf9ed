"""Which addresses a download may connect to: checks the very address for which the socket is created."""

import errno
import socket
from collections.abc import Collection
from typing import Any

from app.domain.spec.locations.hosts import address_of, is_allowed, is_public

AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]


class PrivateAddress(OSError):
    """Raised instead of connecting to a loopback, link-local or private address."""


class GuardedSockets:
    """Creates sockets for aiohttp; ``host`` and ``port`` are those of the next request.

    ``trusted`` are configured by the operator, as ``host:port``.
    """

    def __init__(self, allow: tuple[str, ...], trusted: Collection[str] = ()) -> None:
        self._allow = allow
        self._trusted = trusted
        self.host, self.port = "", 0
        self.refused = False
        self.is_proxied = False  # the next request goes through the operator's proxy, which was asked about its host

    def socket(self, info: AddressInfo) -> socket.socket:
        """Raises PrivateAddress; other addresses of the name are tried then."""
        family, kind, protocol, _, address = info
        if not (self.is_proxied or self.is_trusted() or _may_connect(self.host, str(address[0]), self._allow)):
            self.refused = True
            raise PrivateAddress(errno.EACCES, f"{self.host} leads to a private address")
        return socket.socket(family, kind, protocol)

    def is_trusted(self) -> bool:
        """Addresses configured by the operator may be private, and a gateway may redirect to subdomains.

        Other ports of the same machine are other services.
        """
        authority = f"{self.host}:{self.port}"
        return any(authority == each or authority.endswith(f".{each}") for each in self._trusted)


def _may_connect(host: str, text: str, allow: tuple[str, ...]) -> bool:
    address = address_of(text)
    return address is not None and (is_public(address) or is_allowed(host, address, allow))
