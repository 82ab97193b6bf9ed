"""A batch over the API's database whose jobs a test runs by hand: they store shards, complete, fail."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update

from app.domain.lifecycle.states import JobState
from app.http.context import EXTENSION
from app.models import Batch, BatchJob, File, Job, Node
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.access.api_keys import CLI_ACTOR
from app.services.batches import content as batch_content
from app.services.batches import creation, stepping
from app.services.batches.creation import NewBatch
from app.services.batches.validating import BodyCheck
from app.storage.object_keys import artifacts_key, shard_key, shards_key, user_file_key
from tests.builders.batches import CHAT as CHAT  # noqa: PLC0414 – for the tests that run batches, as the next
from tests.builders.batches import lines_of as lines_of  # noqa: PLC0414
from tests.builders.batches import request_line
from tests.builders.factories import make_node
from tests.builders.files import put_file
from tests.builders.shards import make_shard
from tests.systems.apps import Api

MODEL = "/srv/models/tiny"
CALLER = Caller(key_id=CLI_ACTOR, role=Role.ADMIN, project="default")
PARTS = {"resource_config": {"gpu_count": 1, "device_type": "cpu"}}


def request(custom_id: str, model: str = MODEL, **changes: Any) -> dict[str, Any]:
    return request_line(custom_id, model=model, **changes)


def put_requests(api: Api, content: bytes, *, caller: Caller = CALLER, **columns: Any) -> str:
    """An uploaded file of requests that has passed its inspection."""
    plane = api.app.extensions[EXTENSION].plane
    file = put_file(
        plane, content, caller=caller, purpose="batch", filename="requests.jsonl", project=caller.home_project
    )
    with api.db.write() as session:
        values = {"status": "processed", "shape": "batch", **columns}
        session.execute(update(File).where(File.id == file.id).values(**values))
    return file.id


def check_nothing(_endpoint: str, _body: Mapping[str, Any]) -> Sequence[tuple[str, str, str]]:
    return []


class BatchRun:
    """One batch; ``step`` is what the coordinator's loop does."""

    def __init__(
        self,
        api: Api,
        requests: Sequence[Mapping[str, Any]] | bytes,
        *,
        caller: Caller = CALLER,
        check: BodyCheck = check_nothing,
        **new: Any,
    ) -> None:
        self.db, self.check = api.db, check
        self.plane = api.app.extensions[EXTENSION].plane
        with self.db.write() as session:
            if session.get(Node, "answers") is None:
                make_node(session, "answers", devices=8)
        content = requests if isinstance(requests, bytes) else lines_of(requests)
        self.file_id = put_requests(api, content, caller=caller)
        values = {"endpoint": CHAT, "window_seconds": 86400, "parts": PARTS, **new}
        self.id = creation.create(self.plane, caller, NewBatch(input_file_id=self.file_id, **values)).id

    def step(self) -> bool:
        return stepping.step(self.plane, self.id, self.check)

    def batch(self) -> Batch:
        with self.db.read() as session:
            return session.get_one(Batch, self.id)

    @property
    def status(self) -> str:
        return self.batch().status

    def change(self, **columns: Any) -> None:
        """Set columns of the batch behind its back."""
        with self.db.write() as session:
            session.execute(update(Batch).where(Batch.id == self.id).values(**columns))

    def end_window(self) -> None:
        self.change(expires_at=utc_now() - timedelta(seconds=1))

    def start(self) -> None:
        """Validated, and its jobs are submitted."""
        while self.step():
            pass
        self.step()

    def jobs(self) -> dict[str, Job]:
        """Model → job."""
        with self.db.read() as session:
            query = select(BatchJob.model, Job).join(Job, Job.id == BatchJob.job_id)
            return {row[0]: row[1] for row in session.execute(query.where(BatchJob.batch_id == self.id))}

    def store(self, rows: Sequence[Mapping[str, Any]], *, model: str = MODEL, number: int = 0) -> None:
        """The model's job stores a shard."""
        job = self.jobs()[model]
        key = shard_key(job.id, number, job.fence)
        requests = batch_content.lines_of(self.plane, self.batch())
        at = {json.loads(line.content)["custom_id"]: line.number for line in requests}
        content = lines_of({**row, "line": at.get(row["custom_id"], row["line"])} for row in rows)
        self.plane.storage.write(f"{key}/part-{number:05d}.jsonl", content)
        failed = sum(row["response"] is None or row["response"]["status_code"] != 200 for row in rows)
        with self.db.write() as session:
            make_shard(
                session,
                session.get_one(Job, job.id),
                number,
                records=len(rows),
                counts={"failed": failed, "prompt_tokens": 3 * len(rows), "completion_tokens": 2 * len(rows)},
                uri=self.plane.storage.uri(key),
            )

    def end(self, state: JobState = JobState.COMPLETED, *, model: str = MODEL, **columns: Any) -> None:
        """The model's job ends so; the result of one that completes takes the place of its shards."""
        job_id = self.jobs()[model].id
        with self.db.write() as session:
            values = {"status": state, "requested": None, "finished_at": utc_now(), **columns}
            session.execute(update(Job).where(Job.id == job_id).values(**values))
        if state is JobState.COMPLETED:
            storage = self.plane.storage
            for part in storage.list(shards_key(job_id)):
                storage.write(artifacts_key(job_id, part.key.rpartition("/")[2]), storage.read(part.key))
            storage.delete_tree(shards_key(job_id))

    def fail(self, *, model: str = MODEL) -> None:
        self.end(JobState.FAILED, model=model, error_type="TRAINER_ERROR", error_message="no such tensor")

    def file(self, file_id: str | None) -> list[dict[str, Any]]:
        """The lines of one of its files."""
        if file_id is None:
            return []
        content = self.plane.storage.read(user_file_key(self.batch().project, file_id))
        return [json.loads(line) for line in content.splitlines()]

    def answers(self) -> list[dict[str, Any]]:
        return self.file(self.batch().output_file_id)

    def errors(self) -> list[dict[str, Any]]:
        return self.file(self.batch().error_file_id)


def answer(custom_id: str, *, status_code: int = 200) -> dict[str, Any]:
    """A stored row."""
    body = {"choices": [{"message": {"content": f"re {custom_id}"}}]}
    response = {"status_code": status_code, "request_id": f"req-{custom_id}", "body": body}
    return {"index": 0, "line": 0, "custom_id": custom_id, "response": response, "error": None}
