"""What becomes of the result, and how it is checkpointed on the way."""

from app.domain.spec import metrics
from app.domain.spec.rules.output import (
    DEFAULT_SAVE_STEPS,
    DEFAULT_SAVE_TOTAL_LIMIT,
    EXPORT_FORMATS,
)
from app.schemas.documents import DocumentSchema
from app.schemas.spec.credentials import Credentials, StorageOptions
from app.schemas.strict_fields import Choice, Flag, Section, Text, Whole, says


class CheckpointConfigSchema(DocumentSchema):
    save_strategy = Choice(
        ("steps", "epoch"), **says("Save every save_steps, or at the end of every epoch", default="steps")
    )
    save_steps = Whole(1, 10**9, **says("Optimizer steps between checkpoints", default=DEFAULT_SAVE_STEPS))
    save_total_limit = Whole(
        1, 10**6,
        **says("Checkpoints to keep; the newest and the best are never deleted", default=DEFAULT_SAVE_TOTAL_LIMIT),
    )  # fmt: skip
    metric_for_best_model = Text(
        longest=128,
        **says(
            f"What the best checkpoint is known by: {', '.join(metrics.COMMON)}, each also with eval_ before it; "
            f"{metrics.described()} (custom scripts: any metric they report)",
            default="eval_loss",
        ),
    )
    greater_is_better = Flag(**says("Default: false for a metric that ends in loss or perplexity, else true"))
    save_on_each_node = Flag(
        **says("Without effect: checkpoints are saved once, to storage that every node reads", default=False)
    )
    resume_from_best = Flag(
        **says(
            "A retried or resumed attempt goes on from the best checkpoint instead of the newest, and "
            "resume_from_checkpoint: job-… means its best",
            default=False,
        )
    )


_CHECKPOINT = CheckpointConfigSchema()  # made once: that takes longer than reading a document with it


def _default_checkpoint() -> object:
    return _CHECKPOINT.load({})


class OutputConfigSchema(DocumentSchema):
    output_model_name = Text(longest=128, **says("Names the result in the completion report and the model card"))
    output_path = Text(
        longest=4096,
        **says("Directory that receives the finished model besides the artifacts; never overwritten"),
    )
    credentials = Credentials()
    storage_options = StorageOptions()
    max_output_size_mb = Whole(
        1,
        **says("Most that the finished model may come to; a larger one is refused as it is exported (EXPORT_FAILED)"),
    )
    checkpoint = Section(
        CheckpointConfigSchema, load_default=_default_checkpoint, **says("When checkpoints are saved, which are kept")
    )
    push_to_hub = Flag(**says("Upload the finished model to a hub, to hub_repo_id", default=False))
    hub_repo_id = Text(longest=255, **says("Repository on the hub, owner/name; made if it does not exist"))
    hub_token = Text(longest=1024, **says("Stored encrypted, shown as ***; default the node's own HF_TOKEN"))
    hub_private = Flag(**says("Whether a repository that is made is private", default=True))
    export_format = Text(
        longest=64,
        **says(
            f"{', '.join(EXPORT_FORMATS)}; merged and adapter are for LORA, QLORA and use_lora, "
            "whose default is the adapter and whose other forms need merge_lora",
            default=EXPORT_FORMATS[0],
        ),
    )
    merge_lora = Flag(**says("LORA, QLORA, use_lora: export the base model with the adapter merged in", default=False))
