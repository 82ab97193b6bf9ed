"""The doctor finds what is wrong with a deployment, says what to do, and leaves everything as it was."""

import contextlib
import ctypes
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from app.cli.main import main
from app.database.engine import Database, make_engine
from app.migrations.runner import downgrade
from app.models import ApiKey
from app.services.operations.diagnosis import machine, secrets
from app.services.operations.diagnosis.checks import CHECKS, run_checks
from app.services.operations.diagnosis.findings import Finding, Level
from app.services.operations.diagnosis.site import Site, open_site
from app.storage.storage import Storage
from config.settings import Settings, load_settings
from tests.builders.factories import make_checkpoint, make_job, make_node
from tests.systems.examining import Alive, said
from tests.systems.servers import PostgresServer, RedisServer
from trainyard.protocol.channel import short_address

BRIEFLY = 0.2
LONG_AGO = timedelta(hours=1)


def levels(site: Site) -> dict[str, Level]:
    """The worst finding of each check."""
    order = list(Level)
    found: dict[str, Level] = {}
    for check, finding in run_checks(site):
        found[check] = max(found.get(check, Level.OK), finding.level, key=order.index)
    return found


# ---- all well


@pytest.mark.long
@pytest.mark.both_databases
def test_nothing_is_found_wrong_with_a_deployment_that_works(site: Site) -> None:
    with site.db.write() as session:
        make_node(session, "n1", sandbox="bubblewrap")

    with Alive(site.db):
        found = levels(replace(site, patience_seconds=10.0))

    # Tests run as PostgreSQL's superuser, on a server and a Redis that keep nothing.
    excused = {"database rights", "database server", "broker persistence", "disk space"}
    assert {name: level for name, level in found.items() if level in (Level.WARNING, Level.FAILED)}.keys() <= excused
    assert list(found) == [check.name for check in CHECKS]


def test_nothing_is_left_behind(site: Site, deployment: Settings) -> None:
    levels(site)

    assert list((deployment.data.dir / "files").iterdir()) == []


# ---- what is wrong


def test_a_secret_key_that_is_missing_or_no_key_fails(site: Site) -> None:
    for key, words in {"": "no secret key", "abc": "is not a key"}.items():
        changed = replace(
            site, settings=replace(site.settings, security=replace(site.settings.security, secret_key=key))
        )

        (finding,) = said(changed, "secret key")

        assert (finding.level, words in finding.message) == (Level.FAILED, True)


def test_another_secret_key_than_the_rows_were_sealed_with_fails(site: Site) -> None:
    key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    changed = replace(site, settings=replace(site.settings, security=replace(site.settings.security, secret_key=key)))

    (finding,) = said(changed, "sealed secrets")

    assert finding.level is Level.FAILED
    assert finding.message == "1 of 1 stored secrets were encrypted with another key"
    assert said(site, "sealed secrets")[0].level is Level.OK


def test_secrets_that_others_may_read_fail(site: Site, deployment: Settings) -> None:
    deployment.data.dir.chmod(0o755)
    assert [finding.level for finding in said(site, "files of secrets")] == [Level.WARNING]

    deployment.admin_key_file.chmod(0o644)

    (finding,) = said(site, "files of secrets")
    assert finding.level is Level.FAILED
    assert "admin.key" in finding.message


def test_an_environment_file_that_everybody_may_read_fails(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trainyard.env"
    path.touch(0o644)
    monkeypatch.setattr(secrets, "ENVIRONMENT_FILE", path)

    assert said(site, "files of secrets")[0].fix == f"chmod o= {path}"

    path.chmod(0o640)
    assert said(site, "files of secrets")[0].level is Level.OK


@pytest.mark.both_databases
def test_pending_migrations_fail_and_spare_what_needs_the_tables(site: Site) -> None:
    downgrade(site.db.engine, "0003")

    found = dict(run_checks(site))

    assert found["schema"].level is Level.FAILED
    assert "trainyard db upgrade" in found["schema"].fix
    assert found["jobs"] == Finding(level=Level.SKIPPED, message="needs the schema")


@pytest.mark.both_databases
def test_a_database_without_tables_fails(site: Site) -> None:
    downgrade(site.db.engine, "base")
    with site.db.engine.begin() as connection:
        connection.execute(text("DROP TABLE alembic_version"))

    assert said(site, "schema")[0].fix == "run `trainyard db init`"


@pytest.mark.parametrize(
    ("grants", "level", "words"),
    [
        (["SELECT, INSERT ON job"], Level.FAILED, "may not write the tables"),
        (["ALL ON job"], Level.WARNING, "may not change the schema"),
        (["ALL ON job", "CREATE ON SCHEMA public"], Level.OK, "read, write and migrate"),
    ],
)
def test_a_postgresql_user_without_privileges_is_reported(
    postgres_server: PostgresServer, postgres_url: str, grants: list[str], level: Level, words: str
) -> None:
    role = f"role_{len(grants)}_{len(grants[0])}"
    postgres_server.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'hush'")
    owner = make_engine(postgres_url)
    with owner.begin() as connection:
        for grant in [*grants, "SELECT ON alembic_version"]:
            connection.execute(text(f"GRANT {grant} TO {role}"))
    url = owner.url.set(username=role, password="hush").render_as_string(hide_password=False)

    with open_site(load_settings({"TRAINYARD_DATABASE_URL": url})) as site:
        (finding,) = said(site, "database rights")

    assert (finding.level, words in finding.message) == (level, True)
    with owner.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {role}"))
    owner.dispose()
    postgres_server.execute(f"DROP ROLE {role}")


def test_a_storage_that_is_not_there_fails(site: Site, tmp_path: Path) -> None:
    elsewhere = replace(site.settings.storage, url=f"file://{tmp_path}/not-mounted")

    (finding,) = said(replace(site, settings=replace(site.settings, storage=elsewhere)), "storage")

    assert finding.level is Level.FAILED
    assert "not mounted" in finding.fix
    assert not (tmp_path / "not-mounted").exists()


def test_files_that_nodes_recorded_elsewhere_fail(site: Site, deployment: Settings) -> None:
    with site.db.write() as session:
        here, elsewhere = (make_checkpoint(session, make_job(session)) for _ in range(2))
    Storage(deployment.storage.url).write(f"jobs/{here.job_id}/checkpoints/{here.id}/manifest.json", b"{}")

    (finding,) = said(site, "stored files")

    assert finding.level is Level.FAILED
    assert "1 of the 2 newest files" in finding.message
    assert elsewhere.id in finding.message


def test_a_full_disk_fails_and_an_almost_full_one_warns(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LITTLE_BYTES", 1 << 62)
    assert {finding.level for finding in said(site, "disk space")} <= {Level.WARNING, Level.FAILED}

    monkeypatch.setattr(machine, "TOO_LITTLE_BYTES", 1 << 62)
    assert {finding.level for finding in said(site, "disk space")} == {Level.FAILED}


def test_a_cache_larger_than_its_disk_warns(site: Site) -> None:
    assert said(site, "cache size")[0].level is Level.OK
    large = replace(site.settings, cache=replace(site.settings.cache, max_bytes=1 << 60))

    assert said(replace(site, settings=large), "cache size")[0].level is Level.WARNING


def test_a_gpu_without_its_driver_fails(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PCI", tmp_path)
    for slot, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x8086", "0x030000"), ("c", "0x10de", "0x040300")):
        (tmp_path / slot).mkdir()
        (tmp_path / slot / "vendor").write_text(f"{vendor}\n")
        (tmp_path / slot / "class").write_text(f"{kind}\n")
    monkeypatch.setattr(ctypes, "CDLL", _no_library)

    (finding,) = said(site, "GPU driver")

    assert finding.level is Level.FAILED
    assert "1 NVIDIA device(s)" in finding.message


def _no_library(name: str) -> None:
    raise OSError(name)


@pytest.mark.parametrize(
    ("warm", "listening", "level", "message"),
    [
        ("off", "", Level.OK, "every process of a job starts as a program"),
        ("auto", "", Level.SKIPPED, "no node worker"),
        ("supervisors", "supervisors", Level.OK, "ranks start as programs"),
        ("auto", "supervisors agents", Level.OK, "supervisors, preflights and ranks are forked"),
        ("auto", "supervisors", Level.WARNING, "ranks start as programs, which takes some 5 s more"),
    ],
)
def test_what_is_forked_is_told(site: Site, warm: str, listening: str, level: Level, message: str) -> None:
    changed = replace(site.settings, node=replace(site.settings.node, warm=warm))
    run = site.settings.data.dir / "run"
    run.mkdir(exist_ok=True)

    with contextlib.ExitStack() as servers:
        for name in listening.split():
            server = servers.enter_context(socket.socket(socket.AF_UNIX))
            with short_address(run / f"{name}.sock") as address:
                server.bind(address)
            server.listen()
        (finding,) = said(replace(site, settings=changed), "warm starts")

    assert finding.level is level
    assert message in finding.message


@pytest.mark.parametrize(
    ("wanted", "level"), [("process", Level.WARNING), ("auto", Level.WARNING), ("bubblewrap", Level.FAILED)]
)
def test_a_machine_without_bubblewrap_is_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch, wanted: str, level: Level
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    changed = replace(site.settings, node=replace(site.settings.node, sandbox=wanted))

    assert said(replace(site, settings=changed), "sandbox")[0].level is level


def test_what_the_search_process_reaches_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "missing_locks", lambda: ["network", "files"])

    (finding,) = said(site, "search process")

    assert finding.level is Level.WARNING
    assert "reaches the network and the files of its user" in finding.message


@pytest.mark.parametrize("name", ["API address", "Flower address"])
def test_listening_to_the_world_warns(site: Site, name: str) -> None:
    assert said(site, name)[0].level is Level.OK
    concern = name.split(maxsplit=1)[0].lower()
    open_wide = replace(getattr(site.settings, concern), host="0.0.0.0")

    (finding,) = said(replace(site, settings=replace(site.settings, **{concern: open_wide})), name)

    assert finding.level is Level.WARNING
    assert "TLS" in finding.message


# ---- the broker


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.close()


def with_broker(site: Site, url: str) -> Site:
    return replace(site, settings=replace(site.settings, broker=replace(site.settings.broker, url=url)))


def test_a_broker_that_evicts_fails_and_one_that_forgets_warns(site: Site, own_redis: RedisServer) -> None:
    changed = with_broker(site, own_redis.url)
    assert said(changed, "broker memory")[0].level is Level.OK
    assert said(changed, "broker persistence")[0].level is Level.WARNING
    with own_redis.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("appendonly", "yes")

    assert said(changed, "broker memory")[0].level is Level.FAILED
    assert said(changed, "broker persistence")[0].level is Level.OK


@pytest.mark.parametrize(
    ("url", "level"),
    [
        ("redis://127.0.0.1/0", Level.WARNING),
        ("redis://10.1.2.3/0", Level.FAILED),
        ("redis://:hush@10.1.2.3/0", Level.WARNING),
        ("redis://:hush@[::1]/0", Level.OK),
        ("rediss://:hush@redis.example/0?ssl_cert_reqs=required", Level.OK),
    ],
)
def test_an_unprotected_broker_is_reported(site: Site, url: str, level: Level) -> None:
    assert said(with_broker(site, url), "broker protection")[0].level is level


def test_what_does_not_answer_fails_without_its_password(site: Site) -> None:
    found = [
        finding for check, finding in run_checks(with_broker(site, "redis://:hush@127.0.0.1:1/0")) if "broker" in check
    ]

    assert found[0].level is Level.FAILED
    assert {finding.level for finding in found[1:3]} == {Level.SKIPPED}
    assert "hush" not in repr(found)


# ---- the command


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command waits no six seconds for heartbeats of processes that do not run here."""
    monkeypatch.setitem(open_site.__wrapped__.__kwdefaults__, "patience_seconds", 0.3)  # type: ignore[attr-defined]


def run(deployment: Settings, *arguments: str, **variables: str) -> Result:
    environment = {
        "TRAINYARD_DATA_DIR": str(deployment.data.dir),
        "TRAINYARD_DATABASE_URL": deployment.database.url,
        "TRAINYARD_BROKER_URL": deployment.broker.url,
        **variables,
    }
    return CliRunner().invoke(main, ["doctor", *arguments], env=environment)


@pytest.mark.usefixtures("impatient")
def test_the_command_prints_what_to_do_and_fails_when_something_failed(deployment: Settings) -> None:
    answer = run(deployment)

    assert answer.exit_code == 1
    assert "→ start one: `trainyard coordinator`" in answer.stdout
    assert "ok       schema:" in answer.stdout


@pytest.mark.usefixtures("impatient")
def test_the_command_answers_programs(deployment: Settings) -> None:
    answer = run(deployment, "--json")

    report = json.loads(answer.stdout)
    assert (answer.exit_code, report["ok"]) == (1, False)
    assert {row["check"] for row in report["checks"]} == {"settings", *(check.name for check in CHECKS)}
    assert all(row["fix"] for row in report["checks"] if row["level"] in ("warning", "failed"))


def test_settings_that_cannot_work_are_all_named(deployment: Settings) -> None:
    answer = run(deployment, "--json", TRAINYARD_API_PORT="99999", TRAINYARD_TYPO="1")

    checks = json.loads(answer.stdout)["checks"]
    assert answer.exit_code == 1
    assert [(row["check"], row["level"]) for row in checks] == [("settings", "failed")] * 2


def test_doctor_creates_nothing_in_a_missing_directory(tmp_path: Path) -> None:
    answer = CliRunner().invoke(main, ["doctor"], env={"TRAINYARD_DATA_DIR": str(tmp_path / "nowhere")})

    assert answer.exit_code == 1
    assert "there is no database" in answer.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("impatient")
def test_no_secret_is_printed(deployment: Settings, database: Database) -> None:
    with database.read() as session:
        assert session.query(ApiKey).count() == 1
    hidden = [deployment.security.secret_key, deployment.admin_key_file.read_text().strip()]

    printed = run(deployment, "--json").stdout

    assert [secret for secret in hidden if secret in printed] == []
