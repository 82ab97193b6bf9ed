"""A system's gateway for as long as one test needs it, also where others share the system, and what it counts."""

import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.systems.system import System, wait_for


@contextmanager
def gateway_of(system: System) -> Iterator[None]:
    """Other tests get the system's devices back: the services that requests made are ended."""
    system.start_gateway()
    try:
        wait_for(lambda: answers(system.gateway_port), seconds=60, what="the gateway listens")
        yield
    finally:
        _end_services(system)
        system.kill("gateway", signal.SIGTERM)


def requests_counted(system: System, model: str) -> int:
    """Of a model or service, as gateways have written it down so far: they do so from time to time."""
    used = system.get("/v1/usage?group=model")["usage"]
    return sum(int(each["requests"]) for each in used if each["model"] == model)


def _end_services(system: System) -> None:
    for service in system.get("/v1/services")["services"]:
        system.call("DELETE", f"/v1/services/{service['service_id']}")
    wait_for(lambda: not system.get("/v1/services")["services"], seconds=60, what="the services have ended")


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False
