"""What a job asks for, in words."""

from typing import Any

import pytest

from app.domain.spec.model import ResourceConfig
from app.web.formatting import devices


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "1 device"),
        ({"gpu_count": 2, "device_type": "cuda"}, "2 GPUs"),
        ({"device_type": "cpu"}, "1 CPU slot"),
        ({"gpu_count": 2, "gpu_type": ("h100", "a100")}, "2 h100 or a100"),
        ({"gpu_type": "h100", "gpu_memory_min_mb": 40_000}, "1 h100, each with at least 40,000 MB"),
        ({"gpu_type": "h100", "gpu_fraction": 0.5}, "0.5 of 1 h100"),
        ({"gpu_memory_request_mb": 8000, "device_type": "cuda"}, "8,000 MB of 1 GPU"),
        ({"mig_profile": "1g.10gb"}, "1 slice 1g.10gb"),
        ({"mig_profile": "1g.10gb", "gpu_type": "h100"}, "1 slice 1g.10gb of h100"),
    ],
)
def test_devices_are_named_with_their_type_and_memory(asked: dict[str, Any], said: str):
    assert devices(ResourceConfig(**asked)) == said
