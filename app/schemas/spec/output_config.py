"""The output section of a job document: result, export and checkpoints."""

from app.domain.spec import metrics
from app.domain.spec.model import CheckpointConfig, OutputConfig
from app.domain.spec.rules.output import EXPORT_FORMATS
from app.schemas.documents import JobPartSchema
from app.schemas.spec.credentials import CredentialsField, StorageOptions
from app.schemas.strict_fields import Amounts, Choice, Flag, SectionField, Text, Whole, says


class CheckpointConfigSchema(JobPartSchema):
    save_strategy = Choice(
        ("steps", "epoch"),
        **says("Save every save_steps, or at the end of every epoch", default=CheckpointConfig.save_strategy),
    )
    save_steps = Whole(1, 10**9, **says("Optimizer steps between checkpoints", default=CheckpointConfig.save_steps))
    save_total_limit = Whole(
        1,
        10**6,
        **says(
            "Checkpoints to keep; the newest and the best are never deleted", default=CheckpointConfig.save_total_limit
        ),
    )
    save_at = Amounts(
        **says(
            "Optimizer steps after which a checkpoint is saved as well, without evaluation; ascending, each once. "
            "save_total_limit neither counts nor deletes these checkpoints"
        )
    )
    metric_for_best_model = Text(
        longest=128,
        **says(
            f"The metric that selects the best checkpoint: {', '.join(metrics.COMMON)}, each also prefixed with eval_; "
            f"{metrics.described()} (custom scripts: any metric they report)",
            default="eval_loss",
        ),
    )
    greater_is_better = Flag(**says("Default: false for a metric that ends in loss or perplexity, else true"))
    save_on_each_node = Flag(
        **says(
            "No effect: checkpoints are saved once, to storage that every node can read",
            default=CheckpointConfig.save_on_each_node,
        )
    )
    resume_from_best = Flag(
        **says(
            "A retried or resumed attempt continues from the best checkpoint instead of the newest, and "
            "resume_from_checkpoint: job-… selects that job's best",
            default=CheckpointConfig.resume_from_best,
        )
    )


_CHECKPOINT = CheckpointConfigSchema()  # instantiated once: that takes longer than loading a document


def _default_checkpoint() -> object:
    return _CHECKPOINT.load({})


class OutputConfigSchema(JobPartSchema):
    output_model_name = Text(longest=128, **says("Name of the result in the completion report and the model card"))
    output_path = Text(
        longest=4096, **says("Directory to copy the finished model to, besides the artifacts; never overwritten")
    )
    log_path = Text(
        longest=4096,
        **says("Directory to copy the log of each attempt to when it ends, below a directory with the job's id"),
    )
    credentials = CredentialsField()
    storage_options = StorageOptions()
    max_output_size_mb = Whole(
        1, **says("Maximum size of the exported model; a larger one fails the job with EXPORT_FAILED")
    )
    checkpoint = SectionField(
        CheckpointConfigSchema, load_default=_default_checkpoint, **says("When to save checkpoints and which to retain")
    )
    push_to_hub = Flag(**says("Upload the finished model to a hub, to hub_repo_id", default=OutputConfig.push_to_hub))
    hub_repo_id = Text(longest=255, **says("Repository on the hub, owner/name; created if missing"))
    hub_token = Text(longest=1024, **says("Stored encrypted, shown as ***; default the node's own HF_TOKEN"))
    hub_private = Flag(**says("Whether a created repository is private", default=OutputConfig.hub_private))
    export_format = Text(
        longest=64,
        **says(
            f"{', '.join(EXPORT_FORMATS)}; merged and adapter are for LORA, QLORA and use_lora, "
            "which default to the adapter and require merge_lora for other formats",
            default=EXPORT_FORMATS[0],
        ),
    )
    merge_lora = Flag(
        **says(
            "LORA, QLORA, use_lora: export the base model with the adapter merged in", default=OutputConfig.merge_lora
        )
    )
