"""Models, adapters and services of another project: neither answers nor their times show that they exist."""

import statistics
from collections.abc import Callable

import pytest

from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.model_names import ft_name
from app.models import RegisteredModel
from app.models.base import utc_now
from tests.builders.factories import make_job
from tests.systems.gateways import GatewaySite
from tests.systems.timing import SURE, difference, measured, shown

ROUNDS = 100
SERVICE = "secret"


def made(site: GatewaySite, number: int) -> str:
    """The job of a model that the other project has."""
    with site.db.write() as session:
        job = make_job(session, project="other", state=JobState.COMPLETED, finished_at=utc_now())
        name = ft_name("tiny", "other", "", job.id)
        session.add(RegisteredModel(name=name, kind="fine_tune", project="other", job_id=job.id, created_by="x"))
    return job.id


def named(kind: str, job_id: str, service: str) -> str:
    """What one who guesses asks for."""
    return {
        "fine-tune": ft_name("tiny", "other", "", job_id),
        "checkpoint": f"{ft_name('tiny', 'other', '', job_id)}:ckpt-step-3",
        "job": job_id,
        "service": service,
        "adapter": f"{service}/{job_id}",
    }[kind]


@pytest.fixture
def site(make_site: Callable[..., GatewaySite]) -> GatewaySite:
    """A gateway as a process, and a service of another project that answers."""
    site = make_site()
    _, place = site.engine()
    for number in range(4):
        site.service(f"{SERVICE}-{number}", project="other")
    site.replica(site.service(SERVICE, project="other"), place)
    site.serve_as_process()
    return site


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kinds", [("fine-tune", "job", "service"), ("checkpoint", "adapter")], ids=["whole", "parts"])
def test_names_of_another_project_are_like_names_that_there_are_not(site: GatewaySite, kinds: tuple[str, ...]) -> None:
    for kind in kinds:  # of one gateway, whose start takes as long as a hundred questions
        compare(site, kind)


def compare(site: GatewaySite, kind: str) -> None:
    real, absent = iter([made(site, n) for n in range(ROUNDS)]), iter([new_id("job") for _ in range(ROUNDS)])
    said: dict[str, set[tuple[int, str]]] = {"foreign": set(), "absent": set()}

    def ask(name: str, job_id: str, service: str) -> None:
        asked = named(kind, job_id, service)
        answer = site.chat("say hello", model=asked)
        said[name].add((answer.status, answer.raw.decode().replace(asked, "NAME").replace(service, "SERVICE")))

    kinds = {
        "foreign": lambda: ask("foreign", next(real), SERVICE),
        "absent": lambda: ask("absent", next(absent), "missing"),
    }
    times = measured(ROUNDS, kinds)

    assert said["foreign"] == said["absent"], kind
    assert {status for status, _ in said["foreign"]} == {404}
    later = [seconds + statistics.median(times["absent"]) / 2 for seconds in times["absent"]]
    assert difference(times["absent"], later) < -SURE, "half as long again would be noticed"
    assert abs(difference(times["foreign"], times["absent"])) < SURE, f"{kind}: {shown(times)}"
