"""The memory estimate against what torch allocates on a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.domain.memory.estimate import CUDA_CONTEXT, estimate
from app.domain.spec.model import JobDocument
from tests.trainers.memory_cases import Case

pytestmark = pytest.mark.gpu

_LARGER = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12, "vocab_size": 32768}
_CASES = {
    "full": Case(config=_LARGER, batch_size=8, length=512),
    "bfloat16": Case(config=_LARGER, batch_size=8, length=512, base_model={"dtype": "bfloat16"}),
    "checkpointed": Case(config=_LARGER, length=512, hyperparameters={"gradient_checkpointing": "true"}),
    "lora": Case(config=_LARGER, training_type="LORA", length=512),
    "qlora": Case(config=_LARGER, training_type="QLORA", length=512),
    "dpo": Case(config=_LARGER, training_type="DPO", length=512),
}
TOLERANCE = 0.15  # the allocator rounds up, and kernels have workspaces
_PROGRAM = """
import json, os, sys, torch
from tests.trainers.exact_runs import run
outcome = run(json.load(open(sys.argv[1])))
assert not outcome["error"], outcome["error"]
print("PEAK", torch.cuda.max_memory_allocated(), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("name", _CASES)
def test_peak_is_near_the_estimate(name: str, tmp_path: Path, demo_assets: Path):
    case = _CASES[name]
    plan = case.plan(tmp_path / name, demo_assets)
    plan["spec"]["device_type"] = "cuda"
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    config = json.loads((tmp_path / name / "model" / "config.json").read_text())
    document = case.document().to_json() | {"resource_config": {"device_type": "cuda"}}

    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(file)], capture_output=True, text=True, timeout=300, check=False
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    peak = int(next(line for line in ran.stdout.splitlines() if line.startswith("PEAK ")).split()[1])
    found = estimate(JobDocument.from_json(document), config, device_count=1)
    assert found.total_bytes - CUDA_CONTEXT == pytest.approx(peak, rel=TOLERANCE)
