"""Rules of the documents of inference jobs, which have few of a training's sections; each is a function that raises."""

from collections.abc import Callable, Mapping

from app.domain.errors import BadSpec
from app.domain.spec.data.preprocessing import (
    COLUMNS,
    BadPreprocessing,
    check_targets,
    check_tokenizer_config,
    records_of,
)
from app.domain.spec.data.splits import BadSplit, parse_split
from app.domain.spec.inference import (
    BATCH,
    CHAT_COMPLETIONS,
    EMBED,
    EVALUATION,
    FAIL,
    FEATURES,
    FIELDS,
    GENERATE,
    LOGLIKELIHOOD,
    OPENAI_ENDPOINTS,
    QUANTIZED,
    RECORD,
    REPLICA,
    REQUESTS,
    SCORE,
    Inference,
    InferenceTask,
)
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.model import JobDocument
from app.domain.spec.response_formats import BadResponseFormat, check_response_format
from app.domain.spec.rules import asked_service, data, image, model, mounts, training

MOST_STOPS, LONGEST_STOP = 4, 256
MOST_ANSWERS = 64
MOST_ANSWER_TOKENS = 131_072  # of one record: n x max_new_tokens
MOST_SHARD_RECORDS = 65_536
LEAST_TEMPERATURE = 0.0001  # logits divided by less may not be finite any more
HOTTEST, MOST_TOP_K, LARGEST_PENALTY = 2.0, 2**20, 10.0  # of sampling
LEAST_PENALTY = 0.01  # logits divided by less may not be finite any more
QUANTIZATIONS = ("none", QUANTIZED)
JSONL, PARQUET, NPY, SAFETENSORS = "jsonl", "parquet", "npy", "safetensors"
_ROWS = (PARQUET, "arrow", JSONL)
FORMATS: Mapping[str, tuple[str, ...]] = {BATCH: _ROWS, FEATURES: (*_ROWS, NPY, SAFETENSORS)}
TASKS_OF: Mapping[str, tuple[str, ...]] = {
    BATCH: (GENERATE, LOGLIKELIHOOD, SCORE, REQUESTS),
    FEATURES: (EMBED,),
    REPLICA: (GENERATE, EMBED, SCORE),
}
POOLINGS = ("mean", "last", "cls", "max", "none")
VECTOR_DTYPES = ("float32", "float16", "bfloat16")
# Columns of the results.
RESULT_COLUMNS = (
    *("index", "output", "outputs", "finish_reason", "prompt_tokens", "completion_tokens", "logprobs", "error"),
    *("logprob", "tokens", "perplexity", "is_greedy", "score", "label", "probabilities", "embedding"),
)
_SAMPLING = ("top_p", "top_k", "min_p", "seed")  # without meaning at temperature 0


def _section(document: JobDocument) -> Inference:
    return document.inference or Inference()


def model_is_named(document: JobDocument) -> None:
    base, reference = document.training_config.base_model, _section(document).model
    if reference.job_id is None and base.model_id == NO_MODEL:
        raise BadSpec("name a model by job_id or model_uri", field="training_config.base_model.model_id")


def quantization_has_a_gpu(document: JobDocument) -> None:
    quantization, field = _section(document).model.quantization, "inference.model.quantization"
    if quantization not in QUANTIZATIONS:
        raise BadSpec(f"unknown quantization {quantization!r}; known: {', '.join(QUANTIZATIONS)}", field=field)
    if quantization == QUANTIZED and document.resource_config.device_type == "cpu":
        raise BadSpec(f"{QUANTIZED} needs GPUs; ask for device_type cuda, or leave quantization out", field=field)


def job_is_on_one_node(document: JobDocument) -> None:
    if document.resource_config.node_count != 1:
        raise BadSpec(
            "a job of this kind runs on one node, with up to all of its devices; leave node_count out and raise "
            "gpu_count",
            field="resource_config.node_count",
        )


def each_device_has_a_benchmark(document: JobDocument) -> None:
    """A rank measures whole benchmarks, so more devices than benchmarks would idle."""
    devices, benchmarks = document.resource_config.gpu_count, len(_section(document).benchmarks)
    if devices > benchmarks:
        raise BadSpec(
            f"each device measures whole benchmarks, so of {devices} devices {devices - benchmarks} would idle; ask "
            f"for {benchmarks} at most",
            field="resource_config.gpu_count",
        )


def splits_can_be_read(document: JobDocument) -> None:
    for i, source in enumerate(document.data_config.sources):
        try:
            parse_split(source.split)
        except BadSplit as error:
            raise BadSpec(str(error), field=f"data_config.sources.{i}.split") from error


def task_is_of_the_kind(document: JobDocument) -> None:
    task, possible = _section(document).task, TASKS_OF[document.kind]
    if task.type not in possible:
        other = next((kind for kind, tasks in TASKS_OF.items() if task.type in tasks), BATCH)
        raise BadSpec(
            f"a job of kind {document.kind} has task type {' or '.join(possible)}; {task.type} is for kind {other}",
            field="inference.task.type",
        )
    for name in task.given:
        if name != "type" and name not in FIELDS[task.type]:
            users = " and ".join(each for each, names in FIELDS.items() if name in names)
            raise BadSpec(
                f"{name} is for task type {users}, not for {task.type}; leave it out", field=f"inference.task.{name}"
            )


def requests_are_answered_as_they_are(document: JobDocument) -> None:
    inference = _section(document)
    task, output = inference.task, inference.output
    if task.type != REQUESTS:
        return
    if task.endpoint not in OPENAI_ENDPOINTS:
        raise BadSpec(
            f"name the path that the requests are for: {', '.join(OPENAI_ENDPOINTS)}", field="inference.task.endpoint"
        )
    if output.format != JSONL:
        raise BadSpec(f"answers to requests are written as {JSONL}", field="inference.output.format")
    if output.keep_columns:
        raise BadSpec(
            "answers to requests have custom_id and no other column of the data; leave keep_columns out",
            field="inference.output.keep_columns",
        )
    if document.data_config.preprocess.field_mapping:
        raise BadSpec(
            "requests are read as they are, with custom_id, method, url and body; leave field_mapping out",
            field="data_config.preprocess.field_mapping",
        )


def answers_are_bounded(document: JobDocument) -> None:
    task, field = _section(document).task, "inference.task"
    if task.type != GENERATE:
        return
    if task.n * task.max_new_tokens > MOST_ANSWER_TOKENS:
        raise BadSpec(
            f"{task.n} answers (n) of {task.max_new_tokens} tokens (max_new_tokens) are {task.n * task.max_new_tokens} "
            f"for each record, and at most {MOST_ANSWER_TOKENS} are possible; lower one of them",
            field=f"{field}.n" if task.n > 1 else f"{field}.max_new_tokens",
        )
    if task.n > 1 and task.temperature == 0:
        raise BadSpec(
            f"at temperature 0 all {task.n} answers would be equal; set temperature above 0, or n to 1",
            field=f"{field}.n",
        )
    _check_stops(task, field)
    try:
        check_response_format(task.response_format)
    except BadResponseFormat as error:
        raise BadSpec(str(error), field=f"{field}.response_format{error.part}") from error


def _check_stops(task: InferenceTask, field: str) -> None:
    if len(task.stop) > MOST_STOPS:
        raise BadSpec(f"at most {MOST_STOPS} stop texts; this has {len(task.stop)}", field=f"{field}.stop")
    for i, text in enumerate(task.stop):
        if not text or len(text) > LONGEST_STOP:
            raise BadSpec(
                f"a stop text has 1 to {LONGEST_STOP} characters; correct it or leave it out", field=f"{field}.stop.{i}"
            )


def sampling_has_a_meaning(document: JobDocument) -> None:
    check_sampling(_section(document).task, "inference.task")


def check_sampling(task: InferenceTask, field: str) -> None:
    """Raise BadSpec for values that leave no token, or only one; ``field`` is where the task's fields stand."""
    if 0 < task.temperature < LEAST_TEMPERATURE:
        raise BadSpec(
            f"temperature is 0, which takes the likeliest token, or at least {LEAST_TEMPERATURE}",
            field=f"{field}.temperature",
        )
    if task.top_p == 0:
        raise BadSpec("top_p 0 leaves no token; use a share above 0 and up to 1", field=f"{field}.top_p")
    if task.min_p == 1:
        raise BadSpec("min_p 1 leaves only the likeliest token; set temperature to 0 for that", field=f"{field}.min_p")
    if task.repetition_penalty < LEAST_PENALTY:
        raise BadSpec(
            f"a penalty of less than {LEAST_PENALTY} leaves no token; 1 is none", field=f"{field}.repetition_penalty"
        )


def vectors_fit_the_format(document: JobDocument) -> None:
    inference = _section(document)
    task, form = inference.task, inference.output.format
    if task.type != EMBED:
        return
    if task.pooling not in (None, *POOLINGS):
        raise BadSpec(f"unknown pooling; known: {', '.join(POOLINGS)}", field="inference.task.pooling")
    if task.dtype == "bfloat16" and form != SAFETENSORS:
        raise BadSpec(
            f"{form} has no bfloat16; say float16 or float32, or format {SAFETENSORS}", field="inference.task.dtype"
        )


def errors_are_counted_or_fatal(document: JobDocument) -> None:
    rule = _section(document).on_error
    if rule.action == FAIL and "max_share" in rule.given:
        raise BadSpec(
            f"action {FAIL} ends the job at the first record without an answer, so that max_share has no meaning; "
            f"leave it out, or set action to {RECORD}",
            field="inference.on_error.max_share",
        )


def output_has_a_form(document: JobDocument) -> None:
    output, field = _section(document).output, "inference.output"
    possible = FORMATS[document.kind]
    if output.format not in possible:
        raise BadSpec(
            f"results of kind {document.kind} are written as {', '.join(possible)}; choose one of them",
            field=f"{field}.format",
        )
    if output.keep_columns and output.format in (NPY, SAFETENSORS):
        raise BadSpec(
            f"{output.format} holds numbers alone; leave keep_columns out, or say format {PARQUET}",
            field=f"{field}.keep_columns",
        )
    _check_kept(document, output.keep_columns)


def _check_kept(document: JobDocument, columns: tuple[str, ...]) -> None:
    for i, name in enumerate(columns):
        field = f"inference.output.keep_columns.{i}"
        if name in RESULT_COLUMNS:
            raise BadSpec(
                f"{name} is a column of the results themselves; rename it in the data, or leave it out", field=field
            )
        if name in columns[:i]:
            raise BadSpec(f"the column {name!r} is named twice; name it once", field=field)
        sources = document.data_config.sources
        if sources and all(source.columns and name not in source.columns for source in sources):
            raise BadSpec(f"the column {name!r} is in no source's columns; add it there, or leave it out", field=field)


def columns_can_be_mapped(document: JobDocument) -> None:
    preprocess, columns = document.data_config.preprocess, COLUMNS[records_of(_section(document).task.type)]
    try:
        check_tokenizer_config(preprocess.tokenizer_config)
        check_targets(preprocess.field_mapping, columns, chats="messages" in columns)
    except BadPreprocessing as error:
        raise BadSpec(str(error), field=f"data_config.preprocess.{error.part}") from error
    has_chats = "messages" in columns or _section(document).task.endpoint == CHAT_COMPLETIONS
    if preprocess.chat_template and not has_chats:
        raise BadSpec(
            f"records of task type {_section(document).task.type} are no chats; leave chat_template out",
            field="data_config.preprocess.chat_template",
        )
    data.check_mapped_columns_are_kept(document, preprocess.field_mapping)


def without_effect(task: InferenceTask, field: str = "task") -> list[str]:
    """``field: reason`` for each field of a submitted task that has no effect beside the others."""
    if task.type != GENERATE or task.temperature > 0:
        return []
    return [
        f"{field}.{name}: no effect at temperature 0, which takes the likeliest token"
        for name in _SAMPLING
        if name in task.given
    ]


_SHARED: tuple[Callable[[JobDocument], None], ...] = (
    job_is_on_one_node,
    model.base_model_is_named,
    model_is_named,
    model.source_fits_the_model,
    model.revision_belongs_to_a_hub_model,
    model.dtype_is_known,
    model.model_kwargs_are_known,
    quantization_has_a_gpu,
    asked_service.service_can_answer,
    training.environment_leaves_the_platform_alone,
    splits_can_be_read,
    data.selection_has_a_meaning,
    *mounts.RULES,
    *image.RULES,
)
_OF_RECORDS: tuple[Callable[[JobDocument], None], ...] = (
    data.data_is_named,
    task_is_of_the_kind,
    requests_are_answered_as_they_are,
    answers_are_bounded,
    sampling_has_a_meaning,
    vectors_fit_the_format,
    output_has_a_form,
    errors_are_counted_or_fatal,
    columns_can_be_mapped,
)
# By kind, after the rules of every job's resources. Later rules rely on earlier ones.
RULES: Mapping[str, tuple[Callable[[JobDocument], None], ...]] = {
    BATCH: (*_SHARED, *_OF_RECORDS),
    FEATURES: (*_SHARED, *_OF_RECORDS),
    EVALUATION: (*_SHARED, each_device_has_a_benchmark),
    REPLICA: (*_SHARED, task_is_of_the_kind),
}
