"""What becomes of the result, and how it is checkpointed on the way."""

from app.domain.job_rules import DEFAULT_SAVE_STEPS
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, Section, Text, Whole


class CheckpointConfigSchema(DocumentSchema):
    save_strategy = Choice(("steps", "epoch"), load_default="steps")
    save_steps = Whole(1, 10**9, load_default=DEFAULT_SAVE_STEPS)
    save_total_limit = Whole(1, 10**6, load_default=3)
    metric_for_best_model = Text(longest=128)
    greater_is_better = Flag()
    save_on_each_node = Flag()
    resume_from_best = Flag()


def _default_checkpoint() -> object:
    return CheckpointConfigSchema().load({})


class OutputConfigSchema(DocumentSchema):
    output_model_name = Text(longest=128)
    output_path = Text(longest=4096)
    checkpoint = Section(CheckpointConfigSchema, load_default=_default_checkpoint)
    push_to_hub = Flag()
    hub_repo_id = Text(longest=255)
    hub_token = Text(longest=1024)
    export_format = Text(longest=64)
    merge_lora = Flag()
