"""The dashboard's pages among many jobs: what a browser loads, what they cost the server, and when they can be used.

    python -m benchmarks.web [--jobs 10000] [--points 1000000] [--reads 30] [--only TEXT]

On PostgreSQL, as a super admin, in this process (everything but the network): processor time and duration of each
page, its elements, and its first load: the page with its scripts and styles, gzipped as they are sent. Then the curve
of a job with a million points, and where Chromium is installed the pages in it, until they can be used. One JSON line
on standard output, a table on standard error; the exit code is 1 where a budget is exceeded.
"""

import argparse
import gc
import gzip
import json
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient
from playwright.sync_api import Page, sync_playwright
from sqlalchemy import text
from werkzeug.serving import WSGIRequestHandler, make_server

from app.database.engine import Database, make_engine
from app.migrations.runner import upgrade
from app.services.telemetry import summaries
from app.web.assets import assets
from benchmarks import metrics, reads
from benchmarks.load import median, percentile
from benchmarks.machine import description
from tests.systems.apps import Api
from tests.systems.servers import PostgresServer

BUDGETS = {"cpu_ms": 50.0, "kilobytes": 80.0, "requests": 8, "elements": 2000, "points": 1000, "interactive_s": 1.0}
CURVES_INTERACTIVE_S = 1.5
OPENS = 3  # of each page in Chromium; the median counts
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
LINKED = re.compile(r'(?:src|href)="/ui/static/\w+/([^"]+)"')
# Libraries that are imported by a call are loaded only when a person asks for what needs them.
IMPORTED = re.compile(r'(?:from |import\((?!"\./vendor/))"\./([\w/.-]+)"')
MANY_METRICS, MANY_STEPS, NODES, WAITING, RUNNING = 30, 2000, 40, 300, 60
LIVELY = text("""
    UPDATE job SET status = :status, queued_at = created_at, progress = 0.4, node_names = '[]'
    WHERE id IN (SELECT id FROM job WHERE status = 'COMPLETED' ORDER BY id DESC LIMIT :count)
""")
FILL_POINTS = text("""
    INSERT INTO metric (job_id, name, step, at, value, special, attempt, seq)
    SELECT :job_id, 'metric-0', n, now() + n * interval '1 second', sin(n / 1000.0) + random(), NULL, 1, n + 1
    FROM generate_series(0, CAST(:last AS integer)) AS n
""")
SUMMARISED = 4096  # points at once


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--reads", type=int, default=30)
    parser.add_argument("--only", default="", help="pages whose name has this in it")
    given = parser.parse_args(arguments)
    machine = description()
    folder = Path(tempfile.mkdtemp(prefix="trainyard-web-"))
    postgres = PostgresServer()
    try:
        postgres.start()
        postgres.execute("CREATE DATABASE web")
        found = measured(postgres.url("web"), folder, given)
    finally:
        postgres.close()
        shutil.rmtree(folder)
    report = {"benchmark": "web", "jobs": given.jobs, "reads": given.reads, **found, "machine": machine}
    print(table(report), file=sys.stderr)
    print(json.dumps(report))
    if report["exceeded"]:
        sys.exit("exceeded: " + "; ".join(report["exceeded"]))


def measured(url: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    engine = make_engine(url)
    upgrade(engine)
    db = Database().bind(engine)
    try:
        api = Api(db, folder, TRAINYARD_WEB_ENABLED="true")
        long, many = filled(db, api, given)
        gc.collect()
        gc.freeze()  # as the server does before it serves: a collection would look at all of this program's imports
        pages = {name: path for name, path in paths(db, many).items() if given.only in name}
        client = signed_in(api)
        figures = {name: page_figures(client, path, given.reads) for name, path in pages.items()}
        curve = curve_figures(client, long, given)
        for name, seen in in_chromium(api, pages).items():
            figures[name] |= seen
        return {"pages": figures, "curve": curve, "exceeded": exceeded(figures, curve)}
    finally:
        db.close()


def filled(db: Database, api: Api, given: argparse.Namespace) -> tuple[str, str]:
    """The ids of a job with one long series and of one with many metrics, among all the others."""
    reads.fill_installation(db, api, jobs=given.jobs, nodes=NODES)
    with db.write() as session:
        session.execute(LIVELY, {"status": "PENDING", "count": WAITING})
        session.execute(LIVELY, {"status": "TRAINING", "count": RUNNING})
    long, many = metrics.running_job(db, "node-long"), metrics.running_job(db, "node-many")
    with db.write() as session:
        session.execute(FILL_POINTS, {"job_id": long[0], "last": given.points - 1})
    for _ in range(0, given.points, SUMMARISED):  # as its supervisor does while it reports
        summaries.extend(db, job_id=long[0], fence=long[1], newest={"metric-0": given.points - 1})
    metrics.write(db, many, MANY_METRICS, MANY_STEPS)
    with db.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("VACUUM ANALYZE"))  # what its autovacuum does within a minute
    return long[0], many[0]


def paths(db: Database, job_id: str) -> dict[str, str]:
    job, tabs = (
        f"/ui/jobs/{job_id}",
        ("curves", "log", "events", "attempts", "checkpoints", "results", "document", "system", "access", "change"),
    )
    with db.read() as session:
        some = [str(row.id) for row in session.execute(text("SELECT id FROM job WHERE status = 'COMPLETED' LIMIT 3"))]
        waiting = session.scalar(text("SELECT id FROM job WHERE status = 'PENDING' ORDER BY id LIMIT 1"))
        node = session.scalar(text("SELECT min(name) FROM node"))
        project, queue = (session.scalar(text(f"SELECT min(name) FROM {each}")) for each in ("project", "queue"))
    lists = ("keys", "projects", "queues", "webhooks", "audit", "people", "sign-ins")
    admin = {f"admin: {name}": f"/ui/admin/{name}" for name in lists}
    return {
        "overview": "/ui/",
        "jobs": "/ui/jobs",
        "job": job,
        **{f"job: {tab}": f"{job}/{tab}" for tab in tabs},
        "job that waits": f"/ui/jobs/{waiting}",
        "compare": "/ui/compare?" + "&".join(f"job={each}" for each in some),
        "job to retry": f"/ui/jobs/{some[0]}/retry",
        "sweeps": "/ui/sweeps",
        "sweep: new": "/ui/sweeps/new",
        "evaluations": "/ui/evaluations",
        "evaluation: new": "/ui/evaluations/new",
        "nodes": "/ui/nodes",
        "nodes: utilization": "/ui/nodes?show=utilization",
        "node": f"/ui/nodes/{node}",
        "node: a day": f"/ui/nodes/{node}?span=24h",
        "shares": "/ui/shares",
        "shares: quota": f"/ui/shares/{project}",
        "submit": "/ui/submit",
        "sessions": "/ui/sessions",
        **admin,
        "admin: project": f"/ui/admin/projects/{project}",
        "admin: queue": f"/ui/admin/queues/{queue}",
    }


def signed_in(api: Api) -> FlaskClient:
    client = api.app.test_client()
    answer = client.post("/ui/login", data={"key": api.key}, headers={"Origin": "http://localhost"})
    if answer.status_code != 303:
        sys.exit(f"the sign-in answers {answer.status_code}")
    return client


def page_figures(client: FlaskClient, path: str, count: int) -> dict[str, Any]:
    processor, whole, html = [], [], ""
    for _ in range(count):
        began, used = time.perf_counter(), time.process_time()
        answer = client.get(path)
        html = answer.get_data(as_text=True)
        processor.append(1000 * (time.process_time() - used))
        whole.append(1000 * (time.perf_counter() - began))
        if answer.status_code != 200:
            return {"status": answer.status_code}
    files = loaded_files(html)
    sizes = [len(assets()[name].packed or assets()[name].content) for name in files]
    return {
        "cpu_ms": round(median(processor), 1),
        "cpu_p90_ms": round(percentile(processor, 0.9), 1),
        "whole_ms": round(median(whole), 1),
        "requests": 1 + len(files),
        "kilobytes": round((len(gzip.compress(html.encode(), 6)) + sum(sizes)) / 1000, 1),
        "elements": len(re.findall(r"<[a-z]", html)),
    }


def loaded_files(html: str) -> list[str]:
    """Scripts and styles of a page, with the modules that they import."""
    found = [name for name in dict.fromkeys(LINKED.findall(html)) if not name.endswith(".svg")]
    for name in found:  # grows meanwhile
        if name.endswith(".js") and "vendor/" not in name:
            imported = IMPORTED.findall(assets()[name].content.decode())
            found += [each for each in imported if each not in found]
    return found


def curve_figures(client: FlaskClient, job_id: str, given: argparse.Namespace) -> dict[str, Any]:
    """The whole of a long series, and a thousandth in its middle."""
    middle = f"&from_step={given.points // 2}&to_step={given.points // 2 + given.points // 1000}"
    figures: dict[str, Any] = {"points": given.points}
    for name, more in (("whole", ""), ("part", middle)):
        path = f"/ui/jobs/{job_id}/curves.json?names=metric-0{more}"
        times = [metrics.timed(lambda: client.get(path)) for _ in range(given.reads)]  # noqa: B023 – called at once
        answer = client.get(path)
        series = (answer.json or {})["series"]["metric-0"]
        figures[name] = {
            "points": len(series["steps"]),
            "kilobytes": round(len(gzip.compress(answer.get_data(), 6)) / 1000, 1),
            "p50_ms": round(median(times), 1),
        }
    return figures


class _Silent(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        """A line for each request would hide the table."""


@contextmanager
def served(api: Api) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, api.app, threaded=True, request_handler=_Silent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        time.sleep(2)  # until streams of changes have noticed that their reader is gone


def in_chromium(api: Api, pages: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Seconds until a page can be used, and its elements then; nothing without a browser."""
    program = next((path for path in map(shutil.which, PROGRAMS) if path), None)
    if program is None:
        return {}
    with served(api) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        page = browser.new_page(base_url=url, viewport={"width": 1366, "height": 900})
        page.goto("/ui/login")
        page.get_by_label("API key").fill(api.key)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Sign out").wait_for()
        found = {name: _opened(page, name, path) for name, path in pages.items()}
        browser.close()
    return found


def _opened(page: Page, name: str, path: str) -> dict[str, Any]:
    seconds = [_seconds_until_usable(page, name, path) for _ in range(OPENS)]
    if name == "job: curves":
        for panel in page.locator(".curve").all():  # all of them have been drawn
            panel.scroll_into_view_if_needed()
            panel.locator("canvas").wait_for()
    return {
        "interactive_s": round(median(seconds), 2),
        "live_elements": page.evaluate("document.getElementsByTagName('*').length"),
    }


def _seconds_until_usable(page: Page, name: str, path: str) -> float:
    page.goto("about:blank")
    began = time.perf_counter()
    page.goto(path, wait_until="load")
    if name == "job: curves":
        page.locator(".curve canvas").first.wait_for()
    return time.perf_counter() - began


def exceeded(pages: dict[str, dict[str, Any]], curve: dict[str, Any]) -> list[str]:
    """What is above its budget, a line each."""
    found = []
    for name, figures in pages.items():
        if "cpu_ms" not in figures:
            found.append(f"{name}: status {figures['status']}")
        limits = {**BUDGETS, "live_elements": BUDGETS["elements"]}
        if name == "job: curves":
            limits["interactive_s"] = CURVES_INTERACTIVE_S
        found += [
            f"{name}: {what} {figures[what]} > {most}" for what, most in limits.items() if figures.get(what, 0) > most
        ]
    return found + [
        f"curve: {part} has {curve[part]['points']} points"
        for part in ("whole", "part")
        if curve[part]["points"] > BUDGETS["points"]
    ]


def table(report: dict[str, Any]) -> str:
    columns = (
        "cpu_ms",
        "cpu_p90_ms",
        "whole_ms",
        "requests",
        "kilobytes",
        "elements",
        "interactive_s",
        "live_elements",
    )
    lines = [
        "| page | processor, ms | p90 | whole, ms | requests | kB gzipped | elements | usable, s | elements then |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, figures in report["pages"].items():
        lines.append(f"| {name} | " + " | ".join(str(figures.get(column, "–")) for column in columns) + " |")
    for part in ("whole", "part"):
        figures = report["curve"][part]
        lines.append(
            f"\ncurve of {report['curve']['points']:,} points, {part}: {figures['points']} points, "
            f"{figures['kilobytes']} kB, {figures['p50_ms']} ms"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
