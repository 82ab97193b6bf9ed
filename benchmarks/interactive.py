"""How soon a command in a running job answers, and what a port of a job carries, beside a direct connection.

    python -m benchmarks.interactive [--rounds 5] [--commands 20] [--megabytes 64] [--requests 100]

The real processes on this machine (`trainyard up`). Each round starts a job, and waits until its script serves HTTP.
Cold is the first command in it: from the request for a session to the first byte of its output, which opens the
sandbox where the job has no ports; warm are the commands after it. Then the script's port is read through the
gateway, and, alternating in the same run, the same script outside of any sandbox straight. As all of it shares the
cores of one machine, the processor time of each process is measured, too. One JSON line on standard output, a table
on standard error.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from benchmarks.machine import description
from tests.systems.running_up import RunningUp, wait_until
from tests.systems.servers import free_port
from trainyard.protocol.interactive import PROTOCOL, STDOUT

GOAL_SECONDS, GOAL_SHARE = 0.3, 0.5
START_SECONDS = 60.0
PIECE = 1 << 20
PROCESSES = ("app.gateway", "workers.relay", "workers.rank.sessions")  # that a port's bytes may pass
SERVER = """
import http.server, sys
PIECE = bytes(1 << 20)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        count = int(self.path.rsplit("/", 1)[1])
        self.send_response(200)
        self.send_header("Content-Length", str(count << 20) if count else "2")
        self.end_headers()
        for _ in range(count):
            self.wfile.write(PIECE)
        if not count:
            self.wfile.write(b"ok")
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
print("it serves", flush=True)
server.serve_forever()
"""


class Place:
    """Where HTTP is asked: straight, or through the gateway."""

    def __init__(self, address: str, path: str = "/", headers: dict[str, str] | None = None) -> None:
        self._address, self._path, self._headers = address, path, headers or {}

    def seconds(self, megabytes: int) -> float:
        """Of one request on a connection of its own, to the last byte."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection(self._address, timeout=START_SECONDS)
        connection.request("GET", f"{self._path}{megabytes}", headers=self._headers)
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"{self._address}{self._path} answers {answer.status}: {answer.read()!r}")
        while answer.read(PIECE):
            pass
        connection.close()
        return time.perf_counter() - began


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commands", type=int, default=20, help="warm ones in each round")
    parser.add_argument("--megabytes", type=int, default=64, help="of one answer of a port")
    parser.add_argument("--requests", type=int, default=100, help="small ones, each way")
    given = parser.parse_args(arguments)
    machine, folder = description(), Path(tempfile.mkdtemp(prefix="trainyard-interactive-"))
    up = RunningUp(folder / "data")
    try:
        figures = measured(up.wait_until_ready(), folder, given)
    finally:
        up.stop()
        shutil.rmtree(folder, ignore_errors=True)
    report = {"benchmark": "interactive", **vars(given), **figures, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def measured(up: RunningUp, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(given.rounds):
        job_id = running_job(up, folder, free_port(), with_port=False)
        cold.append(asyncio.run(command_seconds(up, job_id)))
        warm += [asyncio.run(command_seconds(up, job_id)) for _ in range(given.commands)]
        end(up, job_id)
    alone = [seconds_of(lambda: subprocess.run(["echo", "x"], check=True, capture_output=True)) for _ in warm]
    return {
        "cold_seconds": spread(cold),
        "warm_seconds": spread(warm),
        "command_alone_seconds": spread(alone),
        **port_figures(up, folder, given),
    }


def port_figures(up: RunningUp, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Both ways alternate."""
    port = free_port()
    job_id = running_job(up, folder, port, with_port=True)
    ports = call(up, "GET", f"/v1/jobs/{job_id}/ports")["ports"]
    address = urlsplit(ports[0]["url"])
    key = {"Authorization": f"Bearer {up.key}", "Host": address.netloc}
    ours = Place(f"127.0.0.1:{address.port}", address.path, key)
    other = free_port()
    direct = Place(f"127.0.0.1:{other}")
    with subprocess.Popen([sys.executable, str(script(folder, other))], stdout=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: answers(direct) and answers(ours), START_SECONDS)
            before = processor_seconds(up, port)
            large = [(ours.seconds(given.megabytes), direct.seconds(given.megabytes)) for _ in range(given.rounds)]
            after = processor_seconds(up, port)
            small = [(ours.seconds(0), direct.seconds(0)) for _ in range(given.requests)]
        finally:
            server.terminate()
    end(up, job_id)
    through, straight = (given.megabytes / statistics.median(each) for each in zip(*large, strict=True))
    return {
        "port_mb_per_second": round(through, 1),
        "direct_mb_per_second": round(straight, 1),
        "share": round(through / straight, 3),
        "processor_seconds_per_gb": {
            name: round((after[name] - before[name]) * 1024 / given.megabytes / given.rounds, 2) for name in before
        },
        "port_request_seconds": spread([each[0] for each in small]),
        "direct_request_seconds": spread([each[1] for each in small]),
    }


def processor_seconds(up: RunningUp, port: int) -> dict[str, float]:
    """Used so far by each kind of process between the job's script and its reader, and by the script."""
    found = dict.fromkeys((*PROCESSES, "script"), 0.0)
    for process in psutil.Process(up.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            for name in found:
                if name in words or (name == "script" and words[-1:] and words[-1].endswith(f"serve_{port}.py")):
                    found[name] += sum(process.cpu_times()[:2])
    return found


async def command_seconds(up: RunningUp, job_id: str) -> float:
    """From the request for a session to the first byte that its command prints."""
    began = time.perf_counter()
    body = {"kind": "exec", "command": ["echo", "x"]}
    made = await asyncio.to_thread(call, up, "POST", f"/v1/jobs/{job_id}/sessions", body)
    request = HTTPRequest(made["url"], headers={"Authorization": f"Bearer {made['ticket']}"})
    connection = await websocket_connect(request, subprotocols=[PROTOCOL])
    seconds = 0.0
    while (message := await connection.read_message()) is not None:
        if not seconds and isinstance(message, bytes) and message[0] == STDOUT:
            seconds = time.perf_counter() - began
    if not seconds:
        sys.exit(f"the command printed nothing: {connection.close_reason}")
    return seconds


def running_job(up: RunningUp, folder: Path, port: int, *, with_port: bool) -> str:
    """The id of a job that serves HTTP and trains nothing."""
    document: dict[str, Any] = {
        "name": "interactive",
        "training_config": {"framework": {"type": "CUSTOM", "custom_script_path": str(script(folder, port))}},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    }
    if with_port:
        document["interactive_config"] = {"ports": [{"name": "web", "port": port}]}
    job_id: str = call(up, "POST", "/v1/jobs", document)["job_id"]
    wait_until(lambda: "it serves" in json.dumps(call(up, "GET", f"/v1/jobs/{job_id}/logs")), START_SECONDS)
    return job_id


def end(up: RunningUp, job_id: str) -> None:
    call(up, "POST", f"/v1/jobs/{job_id}/cancel", {})
    wait_until(lambda: call(up, "GET", f"/v1/jobs/{job_id}")["status"] == "CANCELLED", START_SECONDS)


def script(folder: Path, port: int) -> Path:
    place = folder / f"serve_{port}.py"
    place.write_text(SERVER.replace("PORT", str(port)))
    return place


def answers(place: Place) -> bool:
    try:
        place.seconds(0)
    except (OSError, SystemExit):  # it does not listen yet
        time.sleep(0.1)
        return False
    return True


def call(up: RunningUp, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {up.key}", "Content-Type": "application/json", "Accept": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(up.url + path, data, headers, method=method)) as answer:
            found: dict[str, Any] = json.load(answer)["data"]
            return found
    except urllib.error.HTTPError as error:
        sys.exit(f"{method} {path}: {error.code} {error.read().decode()}")


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def spread(values: list[float]) -> dict[str, float]:
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 4) for name, value in found.items()}


def table(report: dict[str, Any]) -> str:
    rows = [
        ("first command in a job (s)", report["cold_seconds"], f"≤ {GOAL_SECONDS:g}"),
        ("further commands (s)", report["warm_seconds"], f"≤ {GOAL_SECONDS:g}"),
        ("the command alone (s)", report["command_alone_seconds"], ""),
        ("a small request to a port (s)", report["port_request_seconds"], ""),
        ("the same straight (s)", report["direct_request_seconds"], ""),
    ]
    lines = ["| | median | least | most | goal |", "|---|---|---|---|---|"]
    lines += [f"| {what} | {v['median']:.3f} | {v['min']:.3f} | {v['max']:.3f} | {goal} |" for what, v, goal in rows]
    lines += [
        f"| a port (MB/s) | {report['port_mb_per_second']} | | | |",
        f"| straight (MB/s) | {report['direct_mb_per_second']} | | | |",
        f"| share | {report['share']} | | | ≥ {GOAL_SHARE:g} |",
    ]
    used = ", ".join(f"{name} {seconds}" for name, seconds in report["processor_seconds_per_gb"].items())
    return "\n".join([*lines, f"| processor time for 1 GB (s) | {used} | | | |"])


if __name__ == "__main__":
    main(sys.argv[1:])
