"""Bodies and query parameters of fine-tuning jobs."""

import math
import re
from collections.abc import Mapping
from typing import Any

from marshmallow import Schema, ValidationError, fields, pre_load, validate

from app.compat.openai.bodies import metadata_map
from app.compat.openai.fine_tuning.auto import AUTO
from app.compat.openai.fine_tuning.naming import METHODS
from app.domain.model_names import SUFFIX, SUFFIX_RULE
from app.domain.spec.model import WANDB
from app.domain.spec.rules.tracking import LONGEST_TAG, MOST_TAGS, MOST_TRACKERS
from app.schemas.documents import DocumentSchema
from app.schemas.queries import QueryWhole
from app.schemas.strict_fields import Choice, FreeObject, Matching, SectionField, Text, Whole, says

_FILTER = re.compile(r"metadata\[(.{1,64})\]", re.DOTALL)
_LARGEST_SEED = 2**31 - 1
_MOST_EPOCHS, _LARGEST_BATCH = 100_000, 65_536


class AutoOr(fields.Field[Any]):
    """``auto``, or a number in a range: a whole one, or (``above`` what is excluded) any."""

    def __init__(self, low: float, high: float, *, whole: bool, meaning: str, **kwargs: Any) -> None:
        kind = "integer" if whole else "number"
        bound = "minimum" if whole else "exclusiveMinimum"
        shape = {"type": ["string", kind], "pattern": f"^{AUTO}$", bound: low, "maximum": high}
        super().__init__(metadata={"description": meaning, **shape}, **kwargs)
        self._low, self._high, self._whole = low, high, whole

    def _deserialize(self, value: object, *_: Any, **__: Any) -> str | float:
        if value == AUTO and isinstance(value, str):
            return AUTO
        kinds = (int,) if self._whole else (int, float)
        if type(value) not in kinds or not self._fits(value):  # not bool, which is an int
            least = f"from {self._low:g}" if self._whole else f"above {self._low:g}"
            what = "a whole number" if self._whole else "a number"
            raise ValidationError(f"must be {AUTO}, or {what} {least} up to {self._high:g}")
        return value  # type: ignore[return-value] # one of kinds

    def _fits(self, value: Any) -> bool:  # noqa: ANN401 – a number
        low = value >= self._low if self._whole else value > self._low
        return bool(math.isfinite(value) and low and value <= self._high)


class SupervisedHyperparametersSchema(DocumentSchema):
    n_epochs = AutoOr(1, _MOST_EPOCHS, whole=True, meaning="Passes over the data")
    batch_size = AutoOr(1, _LARGEST_BATCH, whole=True, meaning="Records of an optimizer step, on all devices")
    learning_rate_multiplier = AutoOr(
        0, 1_000_000, whole=False, meaning="Factor on the default learning rate of the method"
    )


class DpoHyperparametersSchema(SupervisedHyperparametersSchema):
    beta = AutoOr(0, 100, whole=False, meaning="How much it costs to move away from the base model")


class ReinforcementHyperparametersSchema(SupervisedHyperparametersSchema):
    compute_multiplier = AutoOr(0, 512, whole=False, meaning="Factor on the 8 completions of each prompt")
    eval_interval = AutoOr(1, _LARGEST_SEED, whole=True, meaning="Steps between evaluations of validation_file")
    eval_samples = AutoOr(1, _LARGEST_BATCH, whole=True, meaning="Only auto is supported")
    reasoning_effort = Choice(("default", "low", "medium", "high"), **says("Only default is supported"))


class SupervisedSchema(DocumentSchema):
    hyperparameters = SectionField(SupervisedHyperparametersSchema)


class DpoSchema(DocumentSchema):
    hyperparameters = SectionField(DpoHyperparametersSchema)


class ReinforcementSchema(DocumentSchema):
    hyperparameters = SectionField(ReinforcementHyperparametersSchema)
    grader = FreeObject(**says("string_check, text_similarity, score_model, label_model, python, or multi"))


class MethodSchema(DocumentSchema):
    type = Choice(METHODS, required=True)
    supervised = SectionField(SupervisedSchema)
    dpo = SectionField(DpoSchema)
    reinforcement = SectionField(ReinforcementSchema)


class WandbSchema(DocumentSchema):
    project = Text(longest=128, shortest=1, required=True, **says("The project of W&B"))
    name = Text(longest=128, shortest=1, **says("The name of the run; default that of the job"))
    entity = Text(longest=128, shortest=1, **says("The user or team; default that of the key's owner"))
    tags = fields.List(Text(longest=LONGEST_TAG, shortest=1), validate=validate.Length(max=MOST_TAGS))


class IntegrationSchema(DocumentSchema):
    type = Choice((WANDB,), required=True)
    wandb = SectionField(WandbSchema, required=True)


class CreateJobSchema(DocumentSchema):
    model = Text(
        longest=1024,
        shortest=1,
        required=True,
        **says("A name of GET /v1/models, a job's id, a hub id, or a path that jobs may read"),
    )
    training_file = Text(longest=128, shortest=1, required=True, **says("A file with purpose fine-tune"))
    validation_file = Text(longest=128, shortest=1, **says("A file with purpose fine-tune"))
    method = SectionField(MethodSchema, **says("Default: supervised"))
    hyperparameters = SectionField(SupervisedHyperparametersSchema, **says("Deprecated: say them in method"))
    suffix = Matching(SUFFIX, SUFFIX_RULE, **says("A part of the fine-tuned model's name"))
    seed = Whole(0, _LARGEST_SEED, **says("Default: drawn, and in the answer"))
    metadata = metadata_map("Up to 16 pairs, also labels of the job, as openai.NAME")
    integrations = fields.List(
        fields.Nested(IntegrationSchema),
        validate=validate.Length(max=MOST_TRACKERS),
        **says("Runs of W&B, with the key that the operator stores for the project"),
    )
    trainyard = FreeObject(**says("Parts of a job document, which are merged with what the other fields say"))


class CursorQuerySchema(Schema):
    limit = QueryWhole(1, 100, load_default=20)
    after = fields.String(load_default="", validate=validate.Length(max=128), **says("The last id of the page before"))


class CheckpointsQuerySchema(CursorQuerySchema):
    limit = QueryWhole(1, 100, load_default=10)


class FineTuningJobsQuerySchema(CursorQuerySchema):
    """``metadata[NAME]=VALUE`` filters are collected as ``metadata``; ``metadata=null`` selects jobs without any."""

    metadata = fields.Raw(metadata={"type": "string", "enum": ["null"], "description": "Jobs without metadata"})

    @pre_load
    def _filters(self, values: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        found = {name: _FILTER.fullmatch(name) for name in values}
        pairs = {match[1]: values[name] for name, match in found.items() if match is not None}
        others = {name: value for name, value in values.items() if found[name] is None}
        if others.get("metadata", "null") != "null":
            raise ValidationError("must be null; filter by metadata[NAME]=VALUE", field_name="metadata")
        if pairs and "metadata" in others:
            raise ValidationError("must not be given beside metadata[NAME]", field_name="metadata")
        return {**others, "metadata": pairs} if pairs else others
