"""The sections of a document of an inference job: its model, its task, its output, or its benchmarks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain.openai_paths import CHAT_COMPLETIONS as CHAT_COMPLETIONS  # noqa: PLC0414 – re-exported, as the next
from app.domain.openai_paths import COMPLETIONS as COMPLETIONS  # noqa: PLC0414
from app.domain.openai_paths import EMBEDDINGS as EMBEDDINGS  # noqa: PLC0414
from app.domain.openai_paths import OPENAI_ENDPOINTS as OPENAI_ENDPOINTS  # noqa: PLC0414
from app.domain.spec.kinds import BATCH as BATCH  # noqa: PLC0414
from app.domain.spec.kinds import EVALUATION as EVALUATION  # noqa: PLC0414
from app.domain.spec.kinds import FEATURES as FEATURES  # noqa: PLC0414
from app.domain.spec.kinds import KINDS as KINDS  # noqa: PLC0414
from app.domain.spec.kinds import REPLICA as REPLICA  # noqa: PLC0414
from app.domain.spec.kinds import TRAINING as TRAINING  # noqa: PLC0414
from app.domain.spec.section import Section

# By kind: training_config.training_type of such a document, which is also the job's column.
TYPES = {BATCH: "BATCH", FEATURES: "FEATURES", EVALUATION: "EVALUATION", REPLICA: "REPLICA"}
_KINDS = {training_type: kind for kind, training_type in TYPES.items()}
TRANSFORMERS, VLLM = "TRANSFORMERS", "VLLM"  # training_config.framework.type: the engine
ENGINES = (TRANSFORMERS, VLLM)
GENERATE, LOGLIKELIHOOD, SCORE, EMBED = "generate", "loglikelihood", "score", "embed"  # InferenceTask.type
REQUESTS = "requests"  # InferenceTask.type: each record is a request to one of OPENAI_ENDPOINTS
TASKS = (GENERATE, LOGLIKELIHOOD, SCORE, EMBED, REQUESTS)
FORMATS = ("jsonl", "parquet", "arrow", "npy", "safetensors")
RECORD, FAIL = "record", "fail"  # OnRecordError.action
LM_EVAL, TASK_DIR = "lm_eval", "task_dir"  # benchmarks of EleutherAI's harness; their parameter with the task's files
QUANTIZED = "bnb-4bit"  # ModelReference.quantization, on GPUs alone
LONGEST_ANSWER = 128  # tokens, where a document does not say
LATEST_CHECKPOINT, BEST_CHECKPOINT = "latest", "best"  # ModelReference.chosen_as


@dataclass(frozen=True, kw_only=True)
class ModelReference(Section):
    """Weights that a job of the project has made; without ``job_id`` those of ``training_config.base_model``.

    ``checkpoint_id`` names one of its checkpoints, resolved at submission; None: its result. ``adapter``: they are an
    adapter for ``training_config.base_model``, which is then the base model of that job. ``service`` is the name of a
    service of the project that answers in the job's place: the job loads its model's tokenizer only. ``divided`` is the
    framework whose ranks have each written a part of the checkpoint; "" for one that is whole. ``chosen_as``: the
    request has asked for the best or the latest checkpoint; "" where it has named one.
    """

    job_id: str | None = None
    checkpoint_id: str | None = None
    adapter: bool = False
    quantization: str = "none"  # or bnb-4bit
    service: str | None = None
    divided: str = ""
    chosen_as: str = ""


@dataclass(frozen=True, kw_only=True)
class InferenceTask(Section):
    """What is asked of the model for each record; each type reads its own fields, listed in `FIELDS`."""

    type: str = GENERATE
    max_new_tokens: int = LONGEST_ANSWER
    temperature: float = 0.0  # 0: the likeliest token
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    n: int = 1
    stop: tuple[str, ...] = ()
    seed: int = 0
    logprobs: bool = False
    response_format: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None  # of a record; None: the model's context
    truncate: bool = False
    pooling: str | None = None  # mean, last, cls, max or none; None: as the model says, else mean
    layer: int = -1
    normalize: bool | None = None  # None: as the model says, else False
    dtype: str = "float32"
    endpoint: str = ""  # one of OPENAI_ENDPOINTS
    only_model: str = ""  # answer only records whose body.model is this; empty: all
    created: int = 0  # the time that answers to requests name, in seconds since 1970

    @property
    def makes_vectors(self) -> bool:
        return self.type == EMBED or self.endpoint == EMBEDDINGS


@dataclass(frozen=True, kw_only=True)
class InferenceOutput(Section):
    """The form of the results, which go to ``output_config.output_path``."""

    format: str = "jsonl"
    keep_columns: tuple[str, ...] = ()
    shard_records: int = 512


@dataclass(frozen=True, kw_only=True)
class OnRecordError(Section):
    """``fail``: the first record without an answer ends the job; ``record``: more than this share of all does."""

    action: str = RECORD
    max_share: float = 0.01


@dataclass(frozen=True, kw_only=True)
class Benchmark(Section):
    """One benchmark of an evaluation; ``dataset`` is an index in data_config.sources."""

    name: str = ""
    dataset: int | None = None
    num_samples: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Requirement(Section):
    """What a metric of an evaluation has to be; ``metric`` is NAME or NAME/METRIC, bounds are inclusive.

    ``baseline`` is another evaluation, than whose value it may be worse by at most ``margin``.
    """

    metric: str = ""
    min: float | None = None
    max: float | None = None
    baseline: str | None = None
    margin: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Serving(Section):
    """What a replica has of its service; `domain.serving.document` describes the fields.

    ``max_loaded`` 0: no adapters.
    """

    service_id: str = ""
    name: str = ""
    max_context: int | None = None
    max_output_tokens: int = 2048
    max_waiting: int = 200
    max_loaded: int = 0
    max_rank: int = 64
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Inference(Section):
    """What a job does that trains nothing; an evaluation has ``benchmarks``, a replica ``serving``, others ``output``.

    ``planned``: the document of a training plans the evaluation, whose values become points of that job's curves.
    """

    model: ModelReference = ModelReference()
    task: InferenceTask = InferenceTask()
    output: InferenceOutput = InferenceOutput()
    on_error: OnRecordError = OnRecordError()
    benchmarks: tuple[Benchmark, ...] = ()
    require: tuple[Requirement, ...] = ()
    seed: int = 0
    planned: bool = False
    serving: Serving = Serving()


# The fields of a task that each type reads.
_LENGTH = ("max_tokens", "truncate")
FIELDS: Mapping[str, tuple[str, ...]] = {
    GENERATE: (
        *("max_new_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
        *("n", "stop", "seed", "logprobs", "response_format", *_LENGTH),
    ),
    LOGLIKELIHOOD: _LENGTH,
    SCORE: _LENGTH,
    EMBED: ("pooling", "layer", "normalize", "dtype", *_LENGTH),
    REQUESTS: ("endpoint", "only_model", "seed", "created"),
}


def kind_of(training_type: str) -> str:
    """The kind of a job by its training type."""
    return _KINDS.get(training_type, TRAINING)
