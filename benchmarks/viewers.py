"""What people who look at the dashboard cost those who use the API: p99 of the same requests without and with them.

    python -m benchmarks.viewers [--viewers 200] [--rate 40] [--seconds 20] [--rounds 5] [--jobs 10000]

The real API process on PostgreSQL, with its default threads. Clients ask for jobs at a fixed rate, and a job changes
twice a second; in every other round so many tabs follow the overview, by the streams that the server allows and by
polls (`benchmarks/played_viewers.py`). A request counts from when it was due, so that none waits uncounted. All of it
shares the cores of one machine, also the viewers, so the processor time of the API is measured, too: it does not depend
on how busy the machine is. One JSON line on standard output, a table on standard error; the exit code is 1 above the
budget, and where requests, viewers or what they should see are missing.
"""

import argparse
import http.client
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import text

from app.cli.local.command_lines import api_command, child_environment
from app.database.engine import Database, make_engine
from app.migrations.runner import upgrade
from app.security.permissions import Role
from benchmarks import reads, servers
from benchmarks.load import median, percentile
from benchmarks.machine import description
from config.settings import load_settings
from tests.systems.apps import SECRET_KEY, Api
from tests.systems.servers import free_port

MOST_CHANGE = 0.05
CLIENTS, CHANGES_A_SECOND, NODES = 8, 2.0, 40
WARM_UP_SECONDS = 3.0
LIVELY = text("""
    UPDATE job SET status = 'PENDING', queued_at = created_at, node_names = '[]'
    WHERE id IN (SELECT id FROM job WHERE status = 'COMPLETED' ORDER BY id DESC LIMIT 60)
""")


@dataclass(frozen=True, kw_only=True)
class Server:
    """The API's process, a key for the clients, the super admin's for the viewers, and jobs to ask for."""

    port: int
    process: psutil.Process
    keys: list[str]
    viewers_key: str
    jobs: list[str]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=40.0, help="requests of clients in a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=10_000)
    given = parser.parse_args(arguments)
    machine = description()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="trainyard-viewers-"))
        stack.callback(shutil.rmtree, folder)
        say(f"a server with {given.jobs} jobs")
        server = stack.enter_context(serving(folder, given.jobs, stack))
        load(server, given.rate, WARM_UP_SECONDS)
        rounds = [pair_of_rounds(server, given, number) for number in range(given.rounds)]
    found = compared(rounds)
    report = {"benchmark": "viewers", **vars(given), **found, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))
    if missing := unmeasured(found, given):
        sys.exit(f"not measured: {'; '.join(missing)}")
    if found["change"] > MOST_CHANGE:
        sys.exit(f"exceeded: p99 changed by {100 * found['change']:.1f} % > {100 * MOST_CHANGE:g} %")


def say(what: str) -> None:
    """How far it is, on standard error: a run takes some minutes."""
    print(f"{time.strftime('%X')} {what}", file=sys.stderr, flush=True)


@contextmanager
def serving(folder: Path, jobs: int, stack: ExitStack) -> Iterator[Server]:
    broker = servers.started_broker(stack)
    (url,) = servers.databases("postgresql", folder, stack, ("viewers",))
    keys, viewers_key, ids = filled(url, folder, jobs)
    environment = {
        **servers.plain_environment(),
        **servers.environment(folder, url, broker.url),
        "TRAINYARD_SECURITY_SECRET_KEY": SECRET_KEY,
    }
    settings = load_settings(environment)
    settings.data.dir.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = api_command(settings, bind=f"127.0.0.1:{port}")
    process = subprocess.Popen(command, env=child_environment(environment, settings), cwd=folder)
    try:
        servers.wait_until_it_answers(process, port)
        yield Server(port=port, process=psutil.Process(process.pid), keys=keys, viewers_key=viewers_key, jobs=ids)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def filled(url: str, folder: Path, jobs: int) -> tuple[list[str], str, list[str]]:
    """(keys of clients, key of the viewers, ids of jobs that wait)."""
    engine = make_engine(url)
    upgrade(engine)
    db = Database().bind(engine)
    try:
        (folder / "api").mkdir()
        api = Api(db, folder / "api")
        keys = [api.make_key(Role.SUPER_ADMIN, None) for _ in range(CLIENTS)]
        reads.fill_installation(db, api, jobs=jobs, nodes=NODES)
        with db.write() as session:
            session.execute(LIVELY)
            ids = [str(row.id) for row in session.execute(text("SELECT id FROM job WHERE status = 'PENDING'"))]
        with db.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("VACUUM ANALYZE"))
        return keys, api.key, ids
    finally:
        db.close()


def pair_of_rounds(server: Server, given: argparse.Namespace, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(without, with viewers); every other pair begins with them, so that neither kind always comes first."""
    found = {
        viewers: one_round(server, given, viewers) for viewers in sorted((0, given.viewers), reverse=number % 2 == 1)
    }
    return found[0], found[given.viewers]


def unmeasured(found: dict[str, Any], given: argparse.Namespace) -> list[str]:
    """What is missing for the numbers to say anything."""
    expected = given.rounds * CLIENTS * (int(given.rate * given.seconds) // CLIENTS)
    missing = []
    for name in ("without", "with"):
        answered, other = found[name]["requests"], found[name]["not_200"]
        if expected == 0 or answered < expected:
            missing.append(f"{answered} of {expected} requests were answered {name} viewers")
        if other:
            missing.append(f"{other} answers {name} viewers were no 200")
    if failed := found["seen"].get("failed", 0):
        missing.append(f"{failed} viewers failed")
    if not found["seen"].get("parts", 0):
        missing.append("no viewer got a part of the page")
    return missing


def one_round(server: Server, given: argparse.Namespace, viewers: int) -> dict[str, Any]:
    """Milliseconds of every request, and what the server and the viewers did meanwhile."""
    say(f"{given.seconds:g} s with {viewers} viewers")
    with ExitStack() as stack:
        counts: dict[str, int] = {}
        if viewers:
            stack.enter_context(looking(server, viewers, counts))
            time.sleep(2)  # until each has its stream or its first poll
        done = threading.Event()
        changing = threading.Thread(target=_change, args=(server, done))
        changing.start()
        used = _processor_seconds(server.process)
        milliseconds, statuses = load(server, given.rate, given.seconds)
        used = _processor_seconds(server.process) - used
        done.set()
        changing.join()
    share = used / given.seconds
    return {"milliseconds": milliseconds, "statuses": dict(statuses), "processor": share, "viewers": counts}


@contextmanager
def looking(server: Server, viewers: int, counts: dict[str, int]) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.played_viewers", str(server.port), str(viewers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{server.viewers_key}\n")
        process.stdin.flush()
        if process.stdout.readline() != "ready\n":
            sys.exit("the viewers did not start")
        yield
        process.stdin.close()
        counts |= json.loads(process.stdout.readline())


def load(server: Server, rate: float, seconds: float) -> tuple[list[float], Counter[int]]:
    """Each client sends its share of the requests when they are due, also after a late answer."""
    begin, milliseconds, statuses = time.perf_counter() + 0.2, list[float](), Counter[int]()

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        headers = {"Authorization": f"Bearer {server.keys[number]}"}
        for turn in range(int(rate * seconds) // CLIENTS):
            due = begin + (turn * CLIENTS + number) / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            job = server.jobs[(turn * CLIENTS + number) % len(server.jobs)]
            connection.request("GET", f"/v1/jobs/{job}" if turn % 2 else "/v1/jobs?page_size=20", headers=headers)
            answer = connection.getresponse()
            answer.read()
            milliseconds.append(1000 * (time.perf_counter() - due))
            statuses[answer.status] += 1
        connection.close()

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return milliseconds, statuses


def _change(server: Server, done: threading.Event) -> None:
    number = 0
    while not done.wait(1 / CHANGES_A_SECOND):
        number += 1
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/v1/jobs/{server.jobs[0]}",
            method="PATCH",
            data=json.dumps({"labels": {"turn": str(number)}}).encode(),
            headers={"Authorization": f"Bearer {server.viewers_key}", "Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=60).close()


def _processor_seconds(process: psutil.Process) -> float:
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def compared(rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """Percentiles of all requests of each kind of round, and by how much p99 changes."""
    found: dict[str, Any] = {}
    for name, number in (("without", 0), ("with", 1)):
        chosen = [pair[number] for pair in rounds]
        milliseconds = [each for one in chosen for each in one["milliseconds"]]
        found[name] = {
            "requests": len(milliseconds),
            "p50_ms": percentile(milliseconds, 0.5),
            "p99_ms": percentile(milliseconds, 0.99),
            "p99_of_rounds_ms": [percentile(one["milliseconds"], 0.99) for one in chosen],
            "processor": median([one["processor"] for one in chosen]),
            "not_200": sum(count for one in chosen for status, count in one["statuses"].items() if status != 200),
        }
    seen = Counter[str]()
    for _, one in rounds:
        seen.update(one["viewers"])
    change = found["with"]["p99_ms"] / found["without"]["p99_ms"] - 1
    return {**found, "seen": dict(seen), "change": round(change, 3)}


def table(report: dict[str, Any]) -> str:
    lines = [
        "| viewers | requests | p50, ms | p99, ms | p99 of rounds, ms | processors of the API |",
        "|---|---|---|---|---|---|",
    ]
    for name, count in (("without", 0), ("with", report["viewers"])):
        one = report[name]
        spread = f"{min(one['p99_of_rounds_ms'])} to {max(one['p99_of_rounds_ms'])}"
        lines.append(
            f"| {count} | {one['requests']} | {one['p50_ms']} | {one['p99_ms']} | {spread} | {one['processor']:.3f} |"
        )
    return "\n".join([*lines, f"\np99 changes by {100 * report['change']:.1f} %; the viewers: {report['seen']}"])


if __name__ == "__main__":
    main(sys.argv[1:])
