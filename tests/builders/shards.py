"""Jobs that train nothing, and the shards that they have stored."""

from typing import Any

from sqlalchemy.orm import Session

from app.models import Job, Shard
from tests.builders.factories import make_document


def batch_document(*, shard_records: int = 2, benchmarks: int = 0, **changes: Any) -> dict[str, Any]:
    """A stored document of a batch, or of an evaluation of so many benchmarks."""
    inference: dict[str, Any] = {"output": {"shard_records": shard_records}}
    if benchmarks:
        inference = {"benchmarks": [{"name": f"custom:/srv/{i}.py", "dataset": 0} for i in range(benchmarks)]}
    inference |= changes.pop("inference", {})
    return make_document(
        kind="evaluation" if benchmarks else "batch",
        inference=inference,
        **{
            **changes,
            "training_config": {
                "training_type": "EVALUATION" if benchmarks else "BATCH",
                "framework": {"type": "TRANSFORMERS"},
                "hyperparameters": {},
                **changes.get("training_config", {}),
            },
        },
    )


def make_shard(session: Session, job: Job, number: int, *, records: int = 2, **columns: Any) -> Shard:
    """A recorded shard of the job's newest attempt."""
    fence = columns.get("fence", job.fence)
    values: dict[str, Any] = {
        "job_id": job.id,
        "number": number,
        "first_record": number * records,
        "records": records,
        "attempt": max(1, job.attempt),
        "fence": fence,
        "size_bytes": 10,
        "sha256": "0" * 64,
        "counts": {"failed": 0},
        "uri": f"file:///srv/files/jobs/{job.id}/shards/{number}-{fence}",
        **columns,
    }
    shard = Shard(**values)
    session.add(shard)
    session.flush()
    return shard
