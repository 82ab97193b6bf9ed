"""Inference jobs on the wire: the submitted document in its own words, and the answer about one."""

from typing import Any

from marshmallow import Schema, fields, post_load, validate

from app.domain.errors import BadSpec
from app.domain.lifecycle.states import JobState
from app.domain.names import MOST_LABELS
from app.domain.spec.defaults import FORMAT_OF_FEATURES
from app.domain.spec.inference import (
    BATCH,
    BEST_CHECKPOINT,
    FEATURES,
    FIELDS,
    FORMATS,
    LATEST_CHECKPOINT,
    OPENAI_ENDPOINTS,
    TASKS,
    TRANSFORMERS,
    TYPES,
    InferenceOutput,
    InferenceTask,
    OnRecordError,
)
from app.domain.spec.model import BaseModel, DataConfig, JobDocument, TrainingConfig
from app.domain.spec.response_formats import TYPES as RESPONSE_TYPES
from app.domain.spec.rules.inference import (
    HOTTEST,
    LARGEST_PENALTY,
    LONGEST_STOP,
    MOST_ANSWER_TOKENS,
    MOST_ANSWERS,
    MOST_SHARD_RECORDS,
    MOST_STOPS,
    MOST_TOP_K,
    POOLINGS,
    QUANTIZATIONS,
    VECTOR_DTYPES,
)
from app.domain.spec.rules.model import DTYPES, known_model_kwargs
from app.schemas.documents import DocumentSchema
from app.schemas.jobs import display_name, label_map
from app.schemas.queries import ListQuerySchema, OrderBy, QueryMoment, QueryTexts, one_of
from app.schemas.spec.credentials import CredentialsField, StorageOptions
from app.schemas.spec.data_config import PreprocessSchema, SourceSchema
from app.schemas.spec.resource_config import ResourceConfigSchema
from app.schemas.spec.scheduling_config import SchedulingConfigSchema
from app.schemas.spec.tracking import tracker_list
from app.schemas.spec.training_config import environment
from app.schemas.strict_fields import (
    AsStored,
    Choice,
    Flag,
    FreeObject,
    Moment,
    Number,
    SectionField,
    Text,
    Whole,
    says,
)
from app.services.inference.models import WantedModel
from app.services.inference.submission import NewInference

KINDS = (BATCH, FEATURES)
_NO_RESOURCES, _NO_SCHEDULING = ResourceConfigSchema().load({}), SchedulingConfigSchema().load({})
_LONGEST_LAYER = 512


def _of(name: str, meaning: str) -> dict[str, Any]:
    """Metadata of a field of a task, with the types that read it, and its default."""
    types = ", ".join(kind for kind, names in FIELDS.items() if name in names)
    return says(f"{types}: {meaning}", default=getattr(InferenceTask, name))


class ModelReferenceSchema(DocumentSchema):
    """A model: a job's result, one of its checkpoints, or a place."""

    job_id = Text(
        longest=64, shortest=1, **says("A training job of the project, whose result is used, or one of its checkpoints")
    )
    checkpoint = Text(
        longest=128,
        shortest=1,
        **says(
            f"{BEST_CHECKPOINT}, {LATEST_CHECKPOINT}, or the ID of one of the job's checkpoints; default its result"
        ),
    )
    model_uri = Text(
        shortest=1,
        **says(
            "Instead of job_id: the name of a registered model, of a fine-tune (ft:…) or its checkpoint "
            "(ft:…:ckpt-step-N), a hub id, a local directory, or its URI, as base_model.model_id of jobs"
        ),
    )
    service = Text(
        longest=128,
        shortest=1,
        **says("Instead of both: the name of a service of the project that the job asks; for texts and vectors"),
    )
    revision = Text(
        longest=255, shortest=1, **says("model_uri: branch, tag or commit of a hub model; default its main branch")
    )
    source = Text(longest=255, shortest=1, **says("model_uri: hub, local or a URI scheme: where to look for it"))
    tokenizer_id = Text(shortest=1, **says("model_uri: like it; default the tokenizer in the model's directory"))
    credentials = CredentialsField()
    storage_options = StorageOptions()
    dtype = Text(
        longest=32,
        shortest=1,
        **says(f"One of {', '.join(DTYPES)}; default as the job was trained, else {BaseModel.dtype}"),
    )
    trust_remote_code = Flag(**says("Run code shipped with the model, in the job's sandbox; default as of the job"))
    model_kwargs = FreeObject(**says(f"Changes to the model's configuration: {known_model_kwargs()}"))
    quantization = Choice(
        QUANTIZATIONS,
        load_default=QUANTIZATIONS[0],
        **says("bnb-4bit: weights of 4 bits, on GPUs: device_type is cuda then"),
    )

    @post_load
    def _typed(self, values: dict[str, Any], **_: Any) -> WantedModel:
        if values.get("service"):
            _refuse_beside_service(values)
            return WantedModel(service=values["service"])
        own = ("job_id", "checkpoint", "quantization", "model_uri", "service")
        base = {name: value for name, value in values.items() if name not in own}
        named = {"model_id": values["model_uri"]} if values.get("model_uri") else {}
        return WantedModel(
            job_id=values.get("job_id") or None,
            checkpoint=values.get("checkpoint") or None,
            base=BaseModel.from_json({**named, **base}),
            quantization=values["quantization"],
        )


def _refuse_beside_service(values: dict[str, Any]) -> None:
    """A service has its model loaded already. Raises BadSpec: which fields go together is no matter of their form."""
    for name, value in values.items():
        if name != "service" and (name != "quantization" or value != QUANTIZATIONS[0]):
            raise BadSpec(f"{name} is for a model that the job loads; leave it or service out", field=f"model.{name}")


class RecordSourceSchema(SourceSchema):
    class Meta:
        exclude = ("weight",)  # all records are taken, in order


class RecordPreprocessSchema(PreprocessSchema):
    class Meta:
        fields = ("tokenizer_config", "chat_template", "field_mapping")


class RecordsSchema(DocumentSchema):
    sources = fields.List(
        fields.Nested(RecordSourceSchema),
        required=True,
        validate=validate.Length(max=1000),
        **says("Where the records are, read in this order; of each source its split, sliced where it says so"),
    )
    preprocess = SectionField(
        RecordPreprocessSchema, **says("How records are read: tokenizer_config, chat_template and field_mapping")
    )
    seed = Whole(0, 2**32 - 1, **says("Random seed of the samples of sources", default=DataConfig.seed))


class InferenceTaskSchema(DocumentSchema):
    type = Choice(
        TASKS,
        **says(
            "generate: an answer to each prompt; loglikelihood: that of a completion after its prompt, or of a text; "
            "score: the number of a reward model, or the label of a classifier; requests: an answer to each request in "
            "OpenAI's shape; embed: vectors, the default and only type of kind features",
            default=InferenceTask.type,
        ),
    )
    max_new_tokens = Whole(1, MOST_ANSWER_TOKENS, **_of("max_new_tokens", "most tokens of an answer"))
    temperature = Number(0.0, HOTTEST, **_of("temperature", "0 to 2; 0: the likeliest token"))
    top_p = Number(0.0, 1.0, **_of("top_p", "sample from the likeliest tokens with this probability together"))
    top_k = Whole(0, MOST_TOP_K, **_of("top_k", "sample from so many tokens; 0: all"))
    min_p = Number(0.0, 1.0, **_of("min_p", "sample from tokens with this share of the likeliest one's probability"))
    repetition_penalty = Number(
        0.0, LARGEST_PENALTY, **_of("repetition_penalty", "above 1: repeated tokens become less likely")
    )
    n = Whole(1, MOST_ANSWERS, **_of("n", "answers to each record"))
    stop = fields.List(
        Text(longest=4096),
        validate=validate.Length(max=64),
        **says(f"generate: up to {MOST_STOPS} texts of up to {LONGEST_STOP} characters that end an answer"),
    )
    seed = Whole(0, 2**32 - 1, **_of("seed", "random seed of the answers; of requests that name none"))
    logprobs = Flag(**_of("logprobs", "also the log-probability of each token"))
    response_format = FreeObject(
        **says(f"generate: the form of answers: type {' or '.join(RESPONSE_TYPES)}, with schema or pattern")
    )
    max_tokens = Whole(1, 2**24, **says("Most tokens of a record; default what the model can read"))
    truncate = Flag(**says("Cut longer records off, instead of recording an error", default=InferenceTask.truncate))
    pooling = Choice(POOLINGS, **says("embed: how vectors of tokens become one; default as the model says, else mean"))
    layer = Whole(-_LONGEST_LAYER, _LONGEST_LAYER, **_of("layer", "whose hidden states; -1: the last"))
    normalize = Flag(**says("embed: vectors of length 1; default as the model says, else false"))
    dtype = Choice(VECTOR_DTYPES, **_of("dtype", "of the vectors"))
    endpoint = Choice(OPENAI_ENDPOINTS, **says("requests: the path that they are for"))
    only_model = Text(longest=1024, **says("requests: answer only those whose body names this model; default all"))
    created = Whole(0, 2**32 - 1, **_of("created", "the time that answers name, in seconds since 1970"))


class InferenceOutputSchema(DocumentSchema):
    path = Text(longest=4096, **says("Directory to copy the results to, besides the artifacts; never overwritten"))
    log_path = Text(
        longest=4096,
        **says("Directory to copy the log of each attempt to when it ends, below a directory with the job's id"),
    )
    format = Choice(
        FORMATS,
        **says(
            f"batch: jsonl, parquet or arrow, default {InferenceOutput.format}; features: also npy or safetensors, "
            f"default {FORMAT_OF_FEATURES}"
        ),
    )
    keep_columns = fields.List(
        Text(longest=255, shortest=1),
        validate=validate.Length(max=1000),
        **says("Columns of the records that the results have, too; not with npy and safetensors"),
    )
    shard_records = Whole(
        1,
        MOST_SHARD_RECORDS,
        **says(
            "Records of a shard: what an interruption costs, and the most of a file of results",
            default=InferenceOutput.shard_records,
        ),
    )
    max_size_mb = Whole(1, **says("Most that the results may take; larger ones fail the job with EXPORT_FAILED"))
    credentials = CredentialsField()
    storage_options = StorageOptions()


class OnRecordErrorSchema(DocumentSchema):
    action = Choice(
        ("record", "fail"),
        **says(
            "record: the result of a record without an answer is its error; fail: the first one ends the job",
            default=OnRecordError.action,
        ),
    )
    max_share = Number(
        0.0, 1.0, **says("record: the job fails with DATA_INVALID above this share", default=OnRecordError.max_share)
    )


class SubmitInferenceSchema(DocumentSchema):
    name = display_name("A display name; need not be unique", required=True)
    labels = label_map(
        most=MOST_LABELS - 1,
        load_default=dict,
        **says("Keys and values to filter jobs by; type is the kind by default"),
    )
    kind = Choice(KINDS, load_default=BATCH, **says("batch: texts, likelihoods or scores; features: vectors"))
    model = SectionField(ModelReferenceSchema, required=True, **says("The model that is used"))
    data_config = SectionField(RecordsSchema, required=True, **says("The records"))
    task = SectionField(InferenceTaskSchema, load_default=dict, **says("What is asked of the model for each record"))
    output = SectionField(InferenceOutputSchema, load_default=dict, **says("The form of the results"))
    on_error = SectionField(OnRecordErrorSchema, load_default=dict, **says("What happens to records without an answer"))
    resource_config = SectionField(
        ResourceConfigSchema, load_default=lambda: _NO_RESOURCES, **says("Devices of one node; default one device")
    )
    scheduling_config = SectionField(
        SchedulingConfigSchema, load_default=lambda: _NO_SCHEDULING, **says("Queue, priority, preemption, time limits")
    )
    environment = environment()
    max_retries = Whole(0, 100, **says("Maximum retries after transient failures", default=TrainingConfig.max_retries))
    tracking = tracker_list()

    @post_load
    def _typed(self, values: dict[str, Any], **_: Any) -> NewInference:
        retries = {"max_retries": values["max_retries"]} if "max_retries" in values else {}
        training = {"training_type": TYPES[values["kind"]], "framework": {"type": TRANSFORMERS}, **retries}
        shared = ("name", "kind", "data_config", "resource_config", "scheduling_config", "tracking")
        output = values["output"]
        document = {
            **{name: values[name] for name in shared if name in values},
            "labels": {"type": values["kind"], **values["labels"]},
            "training_config": {**training, "environment": values["environment"]},
            "output_config": {_OUTPUT[name]: output[name] for name in _OUTPUT if name in output},
            "inference": {
                "task": values["task"],
                "output": {name: value for name, value in output.items() if name not in _OUTPUT},
                "on_error": values["on_error"],
            },
        }
        return NewInference(document=JobDocument.from_json(document), model=values["model"])


# Fields of `output` that are of `output_config` in a stored document.
_OUTPUT = {
    "path": "output_path",
    "log_path": "log_path",
    "max_size_mb": "max_output_size_mb",
    "credentials": "credentials",
    "storage_options": "storage_options",
}


class InferenceQuerySchema(ListQuerySchema):
    order_by = OrderBy("created_at", "priority", "name", "status")
    status = QueryTexts(one_of(tuple(JobState)))
    kind = one_of(KINDS)
    queue = Text(longest=63)
    project = Text(longest=63)
    name = Text(longest=128)
    created_after = QueryMoment()
    created_before = QueryMoment()
    labels = fields.List(fields.Tuple((fields.String(), fields.String())), load_default=list)


class InferenceSchema(Schema):
    """A batch or features job: its document in the words of its submission, its status, and its counts."""

    job_id = fields.String(attribute="job.id")
    kind = fields.String(attribute="job.kind")
    name = fields.String(attribute="job.name")
    labels = AsStored({"type": "object", "additionalProperties": {"type": "string"}}, attribute="job.labels")
    project = fields.String(attribute="job.project")
    created_by = fields.String(attribute="job.created_by", **says("The id of the key that made it"))
    created_by_name = fields.String(
        attribute="details.created_by_name",
        **says("The name of that key; empty if it has none, `administrator` for a super admin's"),
    )
    model = SectionField(ModelReferenceSchema, **says("The model; a checkpoint by its ID"))
    adapter = fields.Boolean(**says("Whether the job's weights are an adapter, loaded with their job's base model"))
    data_config = SectionField(RecordsSchema)
    task = SectionField(InferenceTaskSchema)
    output = SectionField(InferenceOutputSchema)
    on_error = SectionField(OnRecordErrorSchema)
    resource_config = SectionField(ResourceConfigSchema)
    scheduling_config = SectionField(SchedulingConfigSchema)
    status = fields.String(attribute="job.status")
    status_reason = fields.String(attribute="job.status_reason")
    pending_reason = fields.String(attribute="details.pending_reason")
    progress = fields.Float(attribute="job.progress")
    records = fields.Integer(attribute="counts.records", **says("Records whose results are stored"))
    total_records = fields.Integer(attribute="job.total_steps", allow_none=True, **says("Known once they are counted"))
    failed_records = fields.Integer(attribute="counts.failed", **says("Of the stored ones, those with an error"))
    prompt_tokens = fields.Integer(attribute="counts.prompt_tokens")
    completion_tokens = fields.Integer(attribute="counts.completion_tokens")
    shards = fields.Integer(attribute="counts.shards", **says("Shards whose results are stored"))
    total_shards = fields.Integer(allow_none=True)
    eta_seconds = fields.Float(attribute="job.eta_seconds", allow_none=True)
    elapsed_seconds = fields.Float(attribute="details.elapsed_seconds")
    parent_job_id = fields.String(attribute="job.parent_job_id", allow_none=True)
    created_at = Moment(attribute="job.created_at")
    started_at = Moment(attribute="job.started_at", allow_none=True)
    finished_at = Moment(attribute="job.finished_at", allow_none=True)
    error_type = fields.String(attribute="job.error_type", allow_none=True)
    error_message = fields.String(attribute="job.error_message", allow_none=True)
    version = fields.Integer(attribute="job.version")
