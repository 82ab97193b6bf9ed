"""Runs work that needs large libraries or secrets in a child process: request on stdin, answer on stdout.

The child writes lines of JSON: ``{"arrived": n}`` as progress, and finally ``{"answer": …}``.
"""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Any

from trainyard.protocol.json import JSON
from workers.attempt_failed import AttemptFailed

# Environment variables that would override the settings in libraries.
NOT_PASSED_ON = ("AWS_", "TRAINYARD_")
PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})


def run_child(
    module: str,
    request: Mapping[str, Any],
    *,
    what: str,
    stalled_seconds: float,
    proxies: bool = False,
    variables: Mapping[str, str] = MappingProxyType({}),
    on_start: Callable[[subprocess.Popen[bytes]], object] = lambda _: None,
) -> JSON:
    """The answer of ``python -m module``. ``proxies``: the machine's own may be used.

    ``variables`` are added to its environment. ``on_start`` receives the process, so that another thread can kill it.

    Raises AttemptFailed when it is silent for too long, or ends without an answer.
    """
    command = [sys.executable, "-m", module, "--die-with", str(os.getpid())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**child_environment(proxies=proxies), **variables}
    ) as process:
        try:
            on_start(process)
            _send(process, request)
            with closing(_received(process, stalled_seconds)) as lines:
                for line in lines:
                    if "answer" in line:
                        return line["answer"]
        except TimeoutError as error:
            message = f"{what}: nothing has arrived for {stalled_seconds:g} s"
            raise AttemptFailed("STORAGE_ERROR", message) from error
        finally:
            process.kill()
    raise AttemptFailed("STORAGE_ERROR", f"{what}: the process that fetches ended with {process.returncode}")


def _send(process: subprocess.Popen[bytes], request: Mapping[str, Any]) -> None:
    assert process.stdin is not None  # noqa: S101 – for the type checker: it is a pipe
    try:
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
    except BrokenPipeError:  # it ended already and will not answer
        return


def _received(process: subprocess.Popen[bytes], stalled_seconds: float) -> Generator[dict[str, Any]]:
    """Its lines until it ends. Raises TimeoutError."""
    assert process.stdout is not None  # noqa: S101
    pipe, rest = process.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        deadline = time.monotonic() + stalled_seconds
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            read = os.read(pipe, 1 << 16)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            deadline = time.monotonic() + stalled_seconds
            yield from map(json.loads, filter(None, lines))


def machine_has_proxy() -> bool:
    return any(name.lower() in PROXIES - {"no_proxy"} and value for name, value in os.environ.items())


def child_environment(*, proxies: bool = False) -> dict[str, str]:
    """This process's environment without our settings, and without the machine's proxies unless they may be used."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(NOT_PASSED_ON) and (proxies or name.lower() not in PROXIES)
    }
