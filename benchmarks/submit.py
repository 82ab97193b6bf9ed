"""How many jobs per second are taken, against the shortest program that takes one (B1).

    python -m benchmarks.submit [--clients 16] [--seconds 5] [--rounds 5] [--stored 10000]

`POST /v1/jobs` and the bare route of `benchmarks/bare_submit.py` (one INSERT, one Celery send), alternating, each
served by gunicorn with the same processes and threads, each with a database and a broker of the same kind. Every client
has a key of its own, because rate limits are per key. Grows by the jobs that are stored already: as many as `--stored`,
twice and four times. No coordinator runs: jobs are accepted, not executed. One JSON line on standard output, a table on
standard error.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from app.cli.local.command_lines import api_command, child_environment
from app.database.from_settings import open_database
from app.domain.ids import new_id
from app.models import Job, JobLabel
from app.models.base import utc_now
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.access import api_keys
from app.services.operations.bootstrap import prepare
from benchmarks import bare_submit, servers
from benchmarks.load import Load, median, post_request, run
from benchmarks.machine import description
from config.settings import Settings, load_settings
from tests.builders.factories import make_document
from tests.systems.servers import free_port

GOAL = 0.9
GROWTH = (1, 2, 4)
BATCH = 1000


@dataclass(frozen=True)
class Side:
    """One of the two servers, and the requests of its clients."""

    port: int
    requests: list[bytes]

    def load(self, seconds: float) -> Load:
        return run(self.port, self.requests, seconds)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stored", type=int, default=10_000)
    parser.add_argument("--databases", default="sqlite,postgresql")
    given = parser.parse_args(arguments)
    machine = description()
    figures = {kind: measured(kind, given) for kind in given.databases.split(",")}
    settings = {name: getattr(given, name) for name in ("clients", "seconds", "rounds", "stored")}
    report = {"benchmark": "submit", **settings, "databases": figures, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def measured(kind: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """One entry for each size of the database."""
    folder = Path(tempfile.mkdtemp(prefix="trainyard-submit-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        broker = servers.started_broker(stack)
        urls = _databases(kind, folder, stack)
        settings = prepare(load_settings(servers.environment(folder, urls[0], broker.url)))
        ours = stack.enter_context(_serving_ours(settings, given.clients))
        bare = stack.enter_context(_serving_bare(settings, urls[1], broker.url, given.clients))
        stored, found = 0, []
        for factor in GROWTH:
            fill(settings, urls[1], given.stored * factor - stored)
            stored = given.stored * factor
            found.append({"stored": stored, **by_turns(ours, bare, given)})
            with broker.client() as client:
                client.flushall()
        return found


def by_turns(ours: Side, bare: Side, given: argparse.Namespace) -> dict[str, Any]:
    for side in (ours, bare):
        side.load(min(1.0, given.seconds))  # connections, imports of Celery, prepared statements
    rounds = [(ours.load(given.seconds), bare.load(given.seconds)) for _ in range(given.rounds)]
    refused = {status: n for one, _ in rounds for status, n in one.statuses.items() if status != 201}
    return {
        "ours_per_second": median([one.per_second(201) for one, _ in rounds]),
        "bare_per_second": median([bare_load.per_second(201) for _, bare_load in rounds]),
        "ratio": median([one.per_second(201) / bare_load.per_second(201) for one, bare_load in rounds]),
        "ours_p50_ms": median([one.percentile(0.5) for one, _ in rounds]),
        "ours_p99_ms": median([one.percentile(0.99) for one, _ in rounds]),
        "bare_p50_ms": median([bare_load.percentile(0.5) for _, bare_load in rounds]),
        "bare_p99_ms": median([bare_load.percentile(0.99) for _, bare_load in rounds]),
        "not_taken": refused,
    }


def fill(settings: Settings, bare_url: str, count: int) -> None:
    """Jobs of earlier days, on both sides."""
    db = open_database(settings.database)
    document = make_document(labels={"team": "a"})
    engine = bare_submit.bare_engine(bare_url)
    for first in range(0, count, BATCH):
        ids = [new_id("job") for _ in range(min(BATCH, count - first))]
        with db.write() as session:
            session.execute(insert(Job), [_row(job_id, document) for job_id in ids])
            session.execute(insert(JobLabel), [_label(job_id) for job_id in ids])
        with engine.begin() as connection:
            rows = [{"id": job_id, "name": "x", "status": "COMPLETED", "document": document} for job_id in ids]
            connection.execute(insert(bare_submit.jobs), rows)
    engine.dispose()
    db.close()


def _label(job_id: str) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "key": "team",
        "value": "a",
        "project": "default",
        "training_type": "SFT",
        "framework": "HF_TRAINER",
        "queue": "default",
        "created_at": utc_now(),
        "ended_as": "COMPLETED",
    }


def _row(job_id: str, document: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": job_id,
        "project": "default",
        "name": document["name"],
        "labels": document["labels"],
        "spec": document,
        "training_type": "SFT",
        "framework": "HF_TRAINER",
        "queue": "default",
        "priority": 5,
        "status": "COMPLETED",
    }


def _databases(kind: str, folder: Path, stack: ExitStack) -> list[str]:
    """URLs of a database for us and one for the bare route, on the same server or disk."""
    urls = servers.databases(kind, folder, stack, ("ours", "bare"))
    engine = bare_submit.bare_engine(urls[1])
    bare_submit.metadata.create_all(engine)
    engine.dispose()
    return urls


@contextmanager
def _serving_ours(settings: Settings, clients: int) -> Iterator[Side]:
    db = open_database(settings.database)
    box = SecretBox(settings.security.secret_key)
    made = [api_keys.create(db, box, role=Role.USER, project="default").key for _ in range(clients)]
    db.close()
    port = free_port()
    environment = {
        **servers.plain_environment(),
        **servers.environment(settings.data.dir.parent, settings.database.url, settings.broker.url),
    }
    body = json.dumps(make_document(labels={"team": "a"})).encode()
    with servers.running(
        api_command(settings, bind=f"127.0.0.1:{port}"), child_environment(environment, settings), port
    ):
        yield Side(port, [post_request("/v1/jobs", body, {"Authorization": f"Bearer {key}"}) for key in made])


@contextmanager
def _serving_bare(settings: Settings, database_url: str, broker_url: str, clients: int) -> Iterator[Side]:
    port = free_port()
    own = {"BARE_DATABASE_URL": database_url, "BARE_BROKER_URL": broker_url}
    body = json.dumps(make_document(labels={"team": "a"})).encode()
    with servers.bare_route("benchmarks.bare_submit", settings, own, port):
        yield Side(port, [post_request("/jobs", body, {})] * clients)


def table(report: dict[str, Any]) -> str:
    lines = ["| database | stored | taken per second | bare | ratio | p50 | p99 | bare p50 | bare p99 |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for kind, sizes in report["databases"].items():
        for f in sizes:
            lines.append(
                f"| {kind} | {f['stored']} | {f['ours_per_second']:.0f} | {f['bare_per_second']:.0f} | {f['ratio']} "
                f"| {f['ours_p50_ms']} ms | {f['ours_p99_ms']} ms | {f['bare_p50_ms']} ms | {f['bare_p99_ms']} ms |"
            )
        grown = sizes[-1]["ours_per_second"] / sizes[0]["ours_per_second"]
        lines.append(f"\n{kind}: with {GROWTH[-1]} times as many stored, {grown:.2f} of the rate\n")
    return "\n".join([*lines, f"goal: ratio ≥ {GOAL:g}"])


if __name__ == "__main__":
    main(sys.argv[1:])
