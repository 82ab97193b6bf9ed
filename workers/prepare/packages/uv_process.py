"""Runs uv for one package environment in a sandbox: without the node's secrets, bounded in all that it takes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.domain.spec.locations.egress import EVERYWHERE
from app.domain.spec.locations.outbound_proxy import OutboundProxy
from workers.attempt_failed import AttemptFailed
from workers.egress.gate_process import GateProcess
from workers.prepare.confined_program import end
from workers.prepare.packages.failures import FIELD, failure
from workers.prepare.packages.uv_limits import (
    MEMORY_BYTES,
    LastOutput,
    first_in_sandbox,
    limited_group,
    wait_for_end_of_sandbox,
)
from workers.run_dir.sizes import allocated_bytes
from workers.sandbox.control_groups import joining
from workers.sandbox.sandbox import PROCESS, Sandbox
from workers.sandbox.spec import FilesystemView, SandboxSpec

CACHE = "downloads"  # in the directory
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_PASSED_ON = ("PATH", "LANG", "LD_LIBRARY_PATH", "SSL_CERT_FILE")
_CERTIFICATES = ("/etc/ssl/certs", "/etc/pki/tls/certs")
_LISTENER_SECONDS = 20.0
_POLL_SECONDS = 0.05
_TOO_LARGE = "File too large"  # what uv says at its limit for one file
_SIZE_SECONDS = 1.0  # between two counts of the directory
_SETTINGS = {
    "UV_NO_CONFIG": "1",
    "UV_NO_PROGRESS": "1",
    "NO_COLOR": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_HTTP_TIMEOUT": "30",
    # It starts the environment's Python, which runs what packages have in .pth files.
    "UV_COMPILE_BYTECODE": "0",
}


class UvUnfinished(AttemptFailed):
    """It took too long or too much disk."""


@dataclass(frozen=True, kw_only=True)
class UvProcess:
    """``directory`` is what it may write, at most ``max_bytes``; ``until`` is in time.monotonic()."""

    program: Path
    sandbox: Sandbox
    directory: Path
    data_dir: Path
    software: tuple[Path, ...] = ()
    readable: tuple[Path, ...]
    private: tuple[str, ...]  # hosts and networks in private addresses that it may connect to
    proxy: OutboundProxy | None = None  # of the operator, on the way to public addresses
    max_bytes: int
    until: float
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    def run(self, arguments: Sequence[str], *, index: str) -> None:
        """``index`` is for messages. None of its processes is left afterwards. Raises AttemptFailed."""
        refused: list[str] = []
        view = FilesystemView(
            run_dir=self.directory, data_dir=self.data_dir, readable=self.readable, software=self.software
        )
        with ExitStack() as stack:
            group = stack.enter_context(limited_group())
            spec = SandboxSpec(view=view, joined=group.joined if group is not None else ())
            said = stack.enter_context(LastOutput())
            process, first = self._started(stack, [str(self.program), *arguments], spec, said, refused)
            try:
                code = self._wait(process)
            finally:
                end(process)
                wait_for_end_of_sandbox(first)
            text, was_killed = said.text(), group is not None and group.memory_kills > 0
        if was_killed:
            raise AttemptFailed(
                "PACKAGES_FAILED",
                f"{FIELD}: installing them takes more than {MEMORY_BYTES >> 20} MiB of memory; name packages with "
                "wheels, or a container image that has them",
            )
        if code and _TOO_LARGE in text:  # a single file
            raise self._too_large()
        if code:
            raise failure("\n".join((*refused, text)), code, index)
        if first is None and group is None and self.sandbox.kind != PROCESS:
            raise AttemptFailed("INTERNAL", f"{FIELD}: the sandbox of uv has not announced itself")

    def _started(
        self, stack: ExitStack, command: Sequence[str], spec: SandboxSpec, said: LastOutput, refused: list[str]
    ) -> "tuple[subprocess.Popen[bytes], int | None]":
        """The process, with no network but the gate, and the first one in its sandbox. Raises AttemptFailed."""

        def noted(note: dict[str, Any]) -> None:
            if note.get("refused"):
                refused.append(f"{note.get('host')}: {note['refused']}")

        ours, theirs = socket.socketpair()
        stack.callback(ours.close)
        with theirs:
            limits = ["--memory", str(MEMORY_BYTES), "--file", str(self.max_bytes)]
            module = [sys.executable, "-m", "workers.prepare.packages.confined_uv", "--gate", str(theirs.fileno())]
            enclosed = stack.enter_context(self.sandbox.enclosed([*module, *limits, "--", *command], spec))
            process = subprocess.Popen(
                joining(spec.joined, enclosed.command),
                env=self._environment() | {"PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONSAFEPATH": "1"},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=said.file,
                stderr=said.file,
                pass_fds=(*enclosed.files, theirs.fileno()),
                start_new_session=True,
            )
        said.begin()
        gate = GateProcess([EVERYWHERE], self.private, noted, proxy=self.proxy)
        stack.callback(gate.close)
        ours.settimeout(_LISTENER_SECONDS)
        try:
            _, files, _, _ = socket.recv_fds(ours, 64, 1)
        except OSError:
            files = []
        if not files:  # it ended: its exit code and what it said tell why
            return process, None
        first = first_in_sandbox(process.pid) if self.sandbox.kind != PROCESS else None
        gate.serve(files[0])
        return process, first

    def _environment(self) -> dict[str, str]:
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        certificates = {"UV_SYSTEM_CERTS": "1"} if any(Path(each).is_dir() for each in _CERTIFICATES) else {}
        own = {name: str(self.directory / place) for name, place in (("HOME", "home"), ("UV_CACHE_DIR", CACHE))}
        return {
            **passed_on,
            **own,
            "TMPDIR": str(self.directory / "tmp"),
            **_SETTINGS,
            **certificates,
            **self.variables,
        }

    def _wait(self, process: "subprocess.Popen[bytes]") -> int:
        counted_at = time.monotonic()
        while (code := process.poll()) is None:
            now = time.monotonic()
            if now > self.until:
                raise UvUnfinished(
                    "PACKAGES_FAILED",
                    f"{FIELD}: they are not installed in time; name fewer packages or ones with wheels, or have the "
                    "operator raise TRAINYARD_PACKAGES_BUILD_SECONDS",
                )
            if now - counted_at > _SIZE_SECONDS:
                self.check_size()
                counted_at = time.monotonic()
            time.sleep(_POLL_SECONDS)
        self.check_size()
        return code

    def check_size(self) -> None:
        if allocated_bytes(self.directory) > self.max_bytes:
            raise self._too_large()

    def _too_large(self) -> UvUnfinished:
        return UvUnfinished(
            "PACKAGES_FAILED",
            f"{FIELD}: they take more than {self.max_bytes} bytes; name fewer packages (torch comes from the node "
            "if you name none), or have the operator raise TRAINYARD_PACKAGES_MAX_BYTES",
        )


def unusable_proxies(proxy: OutboundProxy | None) -> dict[str, str]:
    """The proxies of this machine's variables, where the operator has named none for fetching: uv may not use them."""
    if proxy is not None:
        return {}
    return {name: value for name, value in os.environ.items() if name.lower() in _PROXIES and value}
