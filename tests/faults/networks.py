"""Network namespaces on one bridge: each node has an address of its own, and a cable that can be pulled out."""

import os
import subprocess
from collections.abc import Sequence


class Networks:
    """One namespace for each name, with the addresses .11, .12, …; the machine itself is .1, and has no other way in.

    Needs root and iproute2. Numbers of this process keep those of tests at the same time apart.
    """

    def __init__(self, names: Sequence[str]) -> None:
        number = os.getpid() % (1 << 16)
        self._bridge = f"ty{number}"
        self._prefix = f"10.{number >> 8}.{number & 255}"
        self._names = tuple(names)
        self._ip("link", "add", self._bridge, "type", "bridge")
        self._ip("address", "add", f"{self.host}/24", "dev", self._bridge)
        self._ip("link", "set", self._bridge, "up")
        for place, name in enumerate(names, start=11):
            self._add(name, place)

    @property
    def host(self) -> str:
        """This machine's address for the nodes."""
        return f"{self._prefix}.1"

    def address(self, name: str) -> str:
        return f"{self._prefix}.{self._names.index(name) + 11}"

    def command(self, name: str) -> list[str]:
        """What a command line begins with that is to run in this network, as the same process."""
        return ["nsenter", f"--net=/run/netns/{self._namespace(name)}", "--"]

    def pull(self, name: str) -> None:
        """Drop all packets in both directions, silently."""
        self._ip("link", "set", self._cable(name), "down")

    def plug(self, name: str) -> None:
        self._ip("link", "set", self._cable(name), "up")

    def close(self) -> None:
        for name in self._names:
            self._ip("netns", "delete", self._namespace(name))
        self._ip("link", "delete", self._bridge)

    def _add(self, name: str, place: int) -> None:
        namespace, cable = self._namespace(name), self._cable(name)
        self._ip("netns", "add", namespace)
        self._ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        self._ip("link", "set", cable, "master", self._bridge, "up")
        self._ip("-n", namespace, "address", "add", f"{self._prefix}.{place}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            self._ip("-n", namespace, "link", "set", interface, "up")

    def _namespace(self, name: str) -> str:
        return f"{self._bridge}-{name}"

    def _cable(self, name: str) -> str:
        return f"{self._bridge}{name}"

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)
