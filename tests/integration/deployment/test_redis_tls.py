"""Redis with TLS: the commands of docs/how-to/secure-connections.md, deploy/redis/trainyard.conf, our clients."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from app.services.operations.diagnosis import broker
from app.services.operations.diagnosis.findings import Level
from app.services.operations.diagnosis.site import Site, open_site
from config.settings import SettingsError, load_settings
from tests.builders.factories import make_job
from tests.systems.celery_processes import CeleryWorld
from tests.systems.servers import free_port
from tests.systems.system import wait_for

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "secure-connections.md").read_text()
PASSWORD = "long-enough"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[str]:
    """Of a server with a certificate made by the commands of the page."""
    folder = tmp_path_factory.mktemp("tls")
    block = next(block for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "openssl x509" in block)
    script = re.sub(r"^chown .*$", "", block, flags=re.MULTILINE)  # only Debian's package makes its user
    script = script.replace("/etc/redis/tls", str(folder)).replace("redis.example.com", "localhost")
    subprocess.run(["sh", "-ec", script], check=True, capture_output=True)
    port = free_port()
    text = (ROOT / "deploy/redis/trainyard.conf").read_text()
    for there, here in {"/etc/redis/tls": str(folder), "6379": str(port), "CHANGE-ME": PASSWORD}.items():
        text = text.replace(there, here)
    (folder / "redis.conf").write_text(f"{text}\nbind 127.0.0.1\ndir {folder}\n")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["redis-server", str(folder / "redis.conf")], stdout=log, stderr=log)
    owned_pids.add(process.pid)
    url = f"rediss://:{PASSWORD}@localhost:{port}/0?ssl_cert_reqs=required&ssl_ca_certs={folder}/ca.crt"
    try:
        wait_for(lambda: answers(url), seconds=20, what="redis answers")
        yield url
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.fixture
def site(url: str, tmp_path: Path) -> Iterator[Site]:
    settings = load_settings({"TRAINYARD_DATA_DIR": str(tmp_path / "data"), "TRAINYARD_BROKER_URL": url})
    with open_site(settings) as site:
        yield site


def test_the_doctor_finds_nothing_wrong_with_it(site: Site) -> None:
    checks = (broker.reachable, broker.memory, broker.persistence, broker.protection)

    assert [check(site)[0].level for check in checks] == [Level.OK] * 4


def test_another_certificate_is_not_accepted(url: str, tmp_path: Path) -> None:
    other = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other"]
    subprocess.run([*other, "-keyout", "other.key", "-out", "other.crt"], cwd=tmp_path, check=True, capture_output=True)

    assert answers(url)
    assert not answers(f"{url.rpartition('=')[0]}={tmp_path}/other.crt")


def test_an_address_that_would_accept_any_certificate_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="ssl_cert_reqs"):
        load_settings({"TRAINYARD_BROKER_URL": url.partition("?")[0]})


@pytest.mark.long
def test_a_coordinator_works_with_it(url: str, sqlite_url: str, tmp_path: Path) -> None:
    with closing(CeleryWorld(tmp_path, database_url=sqlite_url, broker_url=url)) as world:
        with world.db.write() as session:
            job = make_job(session)
        world.start()

        wait_for(
            lambda: world.shown(job.id).state == "QUEUED", seconds=30, what="the job's state in the result backend"
        )
