"""The document of a batch's job."""

from typing import Any

import pytest

from app.domain.batches.documents import job_document


@pytest.mark.parametrize(
    ("given", "on_preemption"),
    [({}, "terminate"), ({"preemptible": True}, "requeue"), ({"preemptible": True, "on_preemption": "pause"}, "pause")],
)
def test_a_job_that_gives_way_to_others_is_queued_again(given: dict[str, Any], on_preemption: str) -> None:
    made = job_document(
        "batch-1",
        0,
        input_file_id="file-1",
        task={"endpoint": "/v1/completions"},
        serving={},
        parts={"scheduling_config": given} if given else {},
    )
    assert made.scheduling_config.on_preemption == on_preemption
