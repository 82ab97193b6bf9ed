"""What framework.config says of HF_TRAINER arrives in the configuration of the trainer."""

from pathlib import Path

from trl.trainer.sft_config import SFTConfig

from tests.trainers.exact_runs import RecordingSession
from tests.trainers.in_process import plan_of
from trainyard.protocol.session import Identity
from workers.rank.run_context import RunContext, RunSpec
from workers.trainers.hf_trainer.loop.arguments import arguments
from workers.trainers.hf_trainer.loop.batch_plan import batch_plan

OPTIONS = {"ddp_bucket_cap_mb": "50", "torch_empty_cache_steps": "7", "average_tokens_across_devices": "false"}


def test_arguments_of_the_trainer_are_passed_on(assets: Path, tmp_path: Path) -> None:
    training = {"framework": {"type": "HF_TRAINER", "config": OPTIONS}}
    spec = RunSpec.from_document(plan_of(tmp_path, assets, "SFT", {}, training_config=training)["spec"])
    context = RunContext(spec, RecordingSession(Identity(run_dir=tmp_path, rank=0, world_size=1), {}))

    config = SFTConfig(**arguments(context, batch_plan(context, 1), validates=True))

    assert (config.ddp_bucket_cap_mb, config.torch_empty_cache_steps) == (50, 7)
    assert config.average_tokens_across_devices is False
