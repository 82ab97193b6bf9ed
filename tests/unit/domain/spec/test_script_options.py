"""What a custom script's configuration asks of the platform."""

import pytest

from app.domain.spec.frameworks.custom import processes_per_node
from app.domain.spec.model import JobDocument


@pytest.mark.parametrize(
    ("config", "ranks"),
    [
        ({}, 4),
        ({"num_proc_per_node": "auto"}, 4),
        ({"num_proc_per_node": "gpu"}, 4),
        ({"num_proc_per_node": "cpu"}, 6),
        ({"num_proc_per_node": 1}, 1),
        ({"num_proc_per_node": "1024"}, 1024),
    ],
)
def test_ranks_are_one_for_each_device_or_as_many_as_asked_for(config: dict[str, object], ranks: int) -> None:
    spec = {
        "training_config": {"framework": {"type": "CUSTOM", "distributed": {"config": config}}},
        "resource_config": {"gpu_count": 4, "cpu_cores": 6},
    }

    assert processes_per_node(JobDocument.from_json(spec), devices=4) == ranks
