"""Services that log a share of their requests: what is stored, and that nothing else is."""

import json
from typing import Any

import pytest
from sqlalchemy import select

from app.gateway import samples
from app.models import File, Project
from app.storage.object_keys import user_file_key
from app.storage.storage import Storage
from tests.systems.gateways import GatewaySite
from tests.systems.system import wait_for

_COUNT = "trainyard_gateway_requests_total{"


def stored(site: GatewaySite) -> list[File]:
    with site.db.read() as session:
        return list(session.scalars(select(File).where(File.filename != "")))


def lines(site: GatewaySite, file: File) -> list[dict[str, Any]]:
    with Storage(site.settings.storage.url).open(user_file_key(file.project, file.id)) as content:
        return [json.loads(line) for line in content.read().splitlines()]


def pass_hour(site: GatewaySite, hours: list[str], *, after: int) -> None:
    """Once so many requests have ended, also for the gateway."""

    def ended() -> int:
        figures = site.ask("GET", "/metrics").raw.decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in figures if line.startswith(_COUNT))

    wait_for(lambda: ended() == after, seconds=10, what="the requests have ended")
    hours.append("2026-05-01T08")


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The last one is now."""
    found = ["2026-05-01T07"]
    monkeypatch.setattr(samples, "_hour", lambda: found[-1])
    return found


@pytest.mark.both_databases
def test_requests_and_answers_become_a_file_of_the_hour(site: GatewaySite, hours: list[str]) -> None:
    _, place = site.engine()
    site.replica(site.service(log="sample:1"), place)
    answer = site.chat("say one two", temperature=0.5)
    site.chat("say one two", stream=True)
    site.chat("long text")
    assert stored(site) == []

    pass_hour(site, hours, after=3)

    wait_for(lambda: len(stored(site)) == 1, seconds=10, what="the file is written")
    [file] = stored(site)
    assert file.filename.startswith("requests-support-2026-05-01T07-")
    assert (file.project, file.purpose, file.status, file.records) == ("default", "user_data", "processed", 3)
    assert file.expires_at is not None
    assert (file.expires_at - file.created_at).days in (29, 30)
    whole, stream, refused = lines(site, file)
    assert whole["request_id"] == answer.headers["X-Request-ID"]
    assert whole["request"]["messages"] == [{"role": "user", "content": "say one two"}]
    assert (whole["path"], whole["status"], whole["model"]) == ("/v1/chat/completions", 200, "support")
    assert whole["answer"] == answer.json
    assert [chunk["choices"][0]["delta"]["content"] for chunk in stream["answer"]] == ["one", "two"]
    assert (refused["status"], refused["answer"]["error"]["code"]) == (400, "long")
    assert site.key not in json.dumps([whole, stream, refused])


def test_nothing_is_stored_by_default_nor_of_other_services(site: GatewaySite, hours: list[str]) -> None:
    _, place = site.engine()
    site.replica(site.service(), place)
    site.replica(site.service("logged", log="sample:1"), place, number=1)

    site.chat("say a secret")
    site.chat("say a word", model="logged")
    pass_hour(site, hours, after=2)

    wait_for(lambda: len(stored(site)) == 1, seconds=10, what="the file is written")
    assert [line["service"] for line in lines(site, stored(site)[0])] == ["logged"]


def test_samples_beyond_the_quota_are_dropped_and_requests_answered(site: GatewaySite, hours: list[str]) -> None:
    _, place = site.engine()
    site.replica(site.service(log="sample:1"), place)
    with site.db.write() as session:
        session.get_one(Project, "default").quota = {"storage_gb": 0}

    site.chat("say one")
    pass_hour(site, hours, after=1)
    site.chat("say two")

    assert site.chat("say three").status == 200
    assert stored(site) == []


def test_samples_are_written_as_the_gateway_ends(site: GatewaySite) -> None:
    _, place = site.engine()
    site.replica(site.service(log="sample:1"), place)
    site.chat("say one")

    site.close()

    assert len(stored(site)) == 1
