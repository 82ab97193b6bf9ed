"""A service over the API's database whose replicas a test runs by hand: they start, answer, fail and end."""

from typing import Any

from sqlalchemy import select, update

from app.domain.lifecycle.states import JobState
from app.domain.serving.document import ServiceDocument
from app.domain.spec.model import BaseModel
from app.http.context import EXTENSION
from app.models import Job, Node, Replica, Service, ServiceEvent
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.access.api_keys import CLI_ACTOR
from app.services.inference.models import WantedModel
from app.services.serving import creation, endpoints, loads, stepping
from app.services.serving.creation import NewService
from app.services.serving.endpoints import Endpoint
from app.services.serving.loads import Load
from tests.builders.factories import make_attempt, make_node
from tests.systems.apps import Api

NODE = "serves"
MODEL = "/srv/models/tiny"
CALLER = Caller(key_id=CLI_ACTOR, role=Role.ADMIN, project="default")


def new_service(model: WantedModel | None = None, **document: Any) -> NewService:
    given = {"name": "support", "resource_config": {"gpu_count": 1, "device_type": "cpu"}, **document}
    wanted = model or WantedModel(base=BaseModel().changed(model_id=MODEL))
    return NewService(document=ServiceDocument.from_json(given), model=wanted)


class ServiceRun:
    """One service; ``step`` is what the coordinator's loop does."""

    def __init__(self, api: Api, *, model: WantedModel | None = None, caller: Caller = CALLER, **document: Any) -> None:
        self.db = api.db
        self.plane = api.app.extensions[EXTENSION].plane
        with self.db.write() as session:
            if session.get(Node, NODE) is None:
                make_node(session, NODE, devices=8)
        self.id = creation.create(self.plane, caller, new_service(model, **document)).id

    def step(self) -> None:
        stepping.step(self.plane, self.id)

    def service(self) -> Service:
        with self.db.read() as session:
            return session.get_one(Service, self.id)

    def change(self, **columns: Any) -> None:
        """Set columns of the service behind its back, such as times that have passed."""
        with self.db.write() as session:
            session.execute(update(Service).where(Service.id == self.id).values(**columns))

    def replicas(self) -> list[Replica]:
        with self.db.read() as session:
            return list(session.scalars(select(Replica).where(Replica.service_id == self.id).order_by(Replica.number)))

    def job(self, number: int) -> Job:
        with self.db.read() as session:
            return session.get_one(Job, self.replicas()[number].job_id)

    def states(self) -> list[str]:
        return [self.job(each.number).status for each in self.replicas()]

    def events(self) -> list[str]:
        with self.db.read() as session:
            query = select(ServiceEvent.type).where(ServiceEvent.service_id == self.id).order_by(ServiceEvent.seq)
            return list(session.scalars(query))

    def endpoints(self) -> list[Endpoint]:
        with self.db.read() as session:
            return endpoints.of(session, self.id)

    def load(self, *, in_flight: int = 0, waiting: int = 0, requests: int = 0, gateway: str = "g") -> None:
        loads.report(self.db, gateway, {self.id: Load(in_flight, waiting, requests)})

    def prepare(self, number: int) -> None:
        """A replica is started on the node, and loads its model."""
        with self.db.write() as session:
            job = session.get_one(Job, self.replicas()[number].job_id)
            make_attempt(session, job, session.get_one(Node, NODE), device_indices=(number % 8,))

    def answer(self, number: int) -> None:
        """A replica answers a probe, and its supervisor records where."""
        if not self.job(number).attempt:
            self.prepare(number)
        with self.db.write() as session:
            replica = session.get_one(Replica, self.replicas()[number].job_id)
            job = session.get_one(Job, replica.job_id)
            job.status = JobState.SERVING
            replica.attempt, replica.fence, replica.address, replica.port = job.attempt, job.fence, "127.0.0.1", 4000
            replica.answers_since = utc_now()

    def end(self, number: int, state: JobState = JobState.COMPLETED, **columns: Any) -> None:
        """The job of a replica ends so."""
        with self.db.write() as session:
            session.execute(
                update(Job)
                .where(Job.id == self.replicas()[number].job_id)
                .values(status=state, requested=None, finished_at=utc_now(), **columns)
            )

    def fail(self, number: int) -> None:
        self.end(number, JobState.FAILED, error_message="no such tensor", error_type="TRAINER_ERROR")
