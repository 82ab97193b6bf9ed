"""The benchmarks of evaluations: what each measures, the columns it reads, its parameters and its metrics."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from app.domain.evaluations import judging, sampling
from app.domain.evaluations.judging import JUDGE
from app.domain.evaluations.metric import MetricDefinition
from app.domain.evaluations.parameters import BadBenchmark, BenchmarkParameter
from app.domain.evaluations.sampling import SAMPLING
from app.domain.evaluations.shared_parameters import ANSWER, NORMALIZE, OF_TASKS, SEPARATOR, SQUAD, TRAINED
from app.domain.spec.hyperparameters.rlhf import FILE, LENGTH, REGEX, REWARD_MODEL, reward_kind
from app.domain.spec.inference import LM_EVAL, TASK_DIR, Benchmark
from app.domain.suggestions import did_you_mean

__all__ = [
    "BENCHMARKS",
    "BadBenchmark",
    "BenchmarkParameter",
    "BenchmarkType",
    "MetricDefinition",
    "check",
    "check_all",
    "find",
]

CUSTOM = "custom"  # before a colon: a family of benchmarks, as LM_EVAL
LOSS, PERPLEXITY, CHOICES, PREFERENCE, REWARD = "loss", "perplexity", "choices", "preference", "reward"
MOST_SAMPLES = 10_000_000
_LONGEST_LABEL, _LABEL_DIGEST = 60, 8
_ARGUMENTS = {CUSTOM: "/path/metric.py", LM_EVAL: "TASK"}
_TASK = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+:-]{0,127}", re.ASCII)
_URI = re.compile(r"[a-z][a-z0-9+.-]*://.", re.IGNORECASE)
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, kw_only=True)
class BenchmarkType:
    """``columns`` names what a record of the dataset has; ``parameters`` may map some of them to other names.

    ``generates``: the model completes prompts. ``takes_argument``: the name is followed by a colon and a path or task.
    ``reads_dataset``: its records are those of the field ``dataset``. A type without ``metrics`` knows them only when
    it has measured. Of those of `judge` its parameters choose some: see `as_measured`.
    """

    name: str
    meaning: str
    columns: tuple[str, ...]
    parameters: Mapping[str, BenchmarkParameter]
    metrics: tuple[MetricDefinition, ...]
    generates: bool = False
    takes_argument: bool = False
    reads_dataset: bool = True

    def describe(self) -> dict[str, Any]:
        """The type as data for clients."""
        return {
            "name": f"{self.name}:…" if self.takes_argument else self.name,
            "meaning": self.meaning,
            "columns": list(self.columns),
            "metrics": [metric.name for metric in self.metrics] or ["those of the task"],
            "parameters": [
                {"name": each.name, "type": each.kind, "default": each.default, "meaning": each.meaning}
                for each in self.parameters.values()
            ],
        }


def _type(
    name: str,
    meaning: str,
    columns: tuple[str, ...],
    parameters: Iterable[BenchmarkParameter],
    *metrics: MetricDefinition,
    **flags: bool,
) -> BenchmarkType:
    named = {each.name: each for each in parameters}
    return BenchmarkType(name=name, meaning=meaning, columns=columns, parameters=named, metrics=metrics, **flags)


def _of_texts(
    name: str, meaning: str, *parameters: BenchmarkParameter, metric: MetricDefinition | None = None
) -> BenchmarkType:
    columns = ("prompt", "answer") if any(each.name == "answer" for each in parameters) else ("prompt",)
    return _type(name, meaning, columns, (*SAMPLING, *parameters), metric or MetricDefinition(name), generates=True)


_TYPES = (
    _type(
        LOSS,
        "The loss of the records, as trainings measure validation data",
        ("text, prompt and completion, or messages",),
        TRAINED,
        MetricDefinition(LOSS, "ratio", larger_is_better=False),
    ),
    _type(
        PERPLEXITY,
        "e to the loss of the records",
        ("text, prompt and completion, or messages",),
        TRAINED,
        MetricDefinition(PERPLEXITY, "exp_ratio", larger_is_better=False),
    ),
    _of_texts(
        "exact_match",
        "Share of answers that equal an accepted one",
        ANSWER,
        NORMALIZE,
        metric=MetricDefinition("exact_match", is_binary=True),
    ),
    _of_texts("f1", "Harmonic mean of precision and recall of words, as SQuAD measures it", ANSWER, SQUAD),
    _of_texts("rouge_l", "F-measure of the longest common subsequence of words", ANSWER),
    _of_texts(
        "bleu",
        "Corpus BLEU of 1 to 4 words from 0 to 100, as sacrebleu's default",
        ANSWER,
        metric=MetricDefinition("bleu", "bleu"),
    ),
    _of_texts(
        "contains",
        "Share of answers that contain an accepted one",
        ANSWER,
        NORMALIZE,
        metric=MetricDefinition("contains", is_binary=True),
    ),
    _of_texts(
        "regex",
        "Share of answers in which a regular expression in RE2's syntax is found",
        BenchmarkParameter(
            "answer", "text", "answer", "The column with the pattern, where there is no parameter pattern", shortest=1
        ),
        BenchmarkParameter(
            "pattern", "text", None, "The same pattern for all records, in place of a column", shortest=1
        ),
        metric=MetricDefinition("regex", is_binary=True),
    ),
    _of_texts(
        "json_valid",
        "Share of answers that are JSON",
        BenchmarkParameter("object_only", "bool", False, "Only JSON objects count"),
        metric=MetricDefinition("json_valid", is_binary=True),
    ),
    _type(
        CHOICES,
        "Share of records whose right choice is the likeliest, also by log-probability for each character",
        ("prompt", "choices", "answer"),
        (
            BenchmarkParameter("choices", "text", "choices", "The column with the list of choices", shortest=1),
            BenchmarkParameter(
                "answer",
                "text",
                "answer",
                "The column with the right choice: its number from 0, or its text",
                shortest=1,
            ),
            SEPARATOR,
        ),
        MetricDefinition("accuracy", is_binary=True),
        MetricDefinition("accuracy_by_length", is_binary=True),
    ),
    _type(
        PREFERENCE,
        "Share of pairs whose chosen answer is likelier, or has the larger reward by a reward model",
        ("prompt", "chosen", "rejected"),
        (),
        MetricDefinition("accuracy", is_binary=True),
        MetricDefinition("margin"),
    ),
    _type(
        REWARD,
        "Mean reward of answers, as of RLHF's hyperparameter `reward`",
        ("prompt",),
        (
            *SAMPLING,
            BenchmarkParameter(
                "reward",
                "text",
                "exact",
                "length:TOKENS, regex:PATTERN, exact, exact:COLUMN, or the path of a Python file with "
                "reward(prompts, completions, **columns)",
            ),
            BenchmarkParameter(
                REWARD_MODEL,
                "text",
                None,
                "A reward model that judges in place of reward: the ID of a job that trained one, a hub id, "
                "directory or URI of a model that gives one number for a text",
                shortest=1,
            ),
        ),
        MetricDefinition(REWARD),
        generates=True,
    ),
    _type(
        JUDGE,
        "What another model says of the answers, by scores or labels, or how often it prefers them to others",
        ("prompt",),
        (*SAMPLING, *judging.PARAMETERS),
        *judging.METRICS,
        generates=True,
    ),
    _type(
        CUSTOM,
        "What score(records, completions) of a Python file returns for each record",
        ("prompt",),
        SAMPLING,
        MetricDefinition("score"),
        generates=True,
        takes_argument=True,
    ),
    _type(
        LM_EVAL,
        "A task of EleutherAI's lm-evaluation-harness, with the harness's own metrics",
        ("those of the task",),
        OF_TASKS,
        takes_argument=True,
        reads_dataset=False,
    ),
)
BENCHMARKS: Mapping[str, BenchmarkType] = {each.name: each for each in _TYPES}


def find(name: str) -> BenchmarkType:
    """The type of a benchmark, by its name with or without an argument. Raises BadBenchmark."""
    family, colon, argument = name.partition(":")
    found = BENCHMARKS.get(family)
    if found is None or (colon and not found.takes_argument):
        known = ", ".join(
            f"{each.name}:{_ARGUMENTS[each.name]}" if each.takes_argument else each.name for each in _TYPES
        )
        meant = did_you_mean(family, BENCHMARKS) if found is None else ""
        raise BadBenchmark("name", f"there is no benchmark {name[:64]!r}{meant}; known: {known}")
    if family == LM_EVAL and not _TASK.fullmatch(argument):
        raise BadBenchmark(
            "name", f"{name[:64]!r} names no task by letters, digits and _.+:-, at most 128; write it as {family}:TASK"
        )
    if family == CUSTOM and not _is_python_file(argument):
        raise BadBenchmark(
            "name",
            f"{name[:64]!r} names no Python file by an absolute path or a URI; write it as {family}:/path/metric.py",
        )
    return found


def as_measured(name: str, parameters: object) -> BenchmarkType:
    """The type of a benchmark with the metrics that it has with these parameters. Raises BadBenchmark."""
    found = find(name)
    if found.name != JUDGE or not isinstance(parameters, Mapping):
        return found
    return replace(found, metrics=judging.metrics_of(parameters))


def argument(name: str) -> str:
    """What follows the colon; "" without."""
    return name.partition(":")[2]


def label(name: str) -> str:
    """The name in files and metrics: `custom:/data/brevity.py` is custom-brevity. A long one ends with a digest."""
    family, _, rest = name.partition(":")
    stem = PurePosixPath(rest).stem if family == CUSTOM else rest
    found = _NOT_IN_LABELS.sub("_", f"{family}-{stem}" if stem else family)
    if len(found) <= _LONGEST_LABEL:
        return found
    mark = hashlib.sha256(stem.encode("utf-8", "surrogatepass")).hexdigest()[:_LABEL_DIGEST]
    return f"{found[: _LONGEST_LABEL - _LABEL_DIGEST - 1]}-{mark}"


def values(benchmark: Benchmark) -> dict[str, Any]:
    """All parameters of a checked benchmark, with defaults for those that it does not give."""
    parameters = find(benchmark.name).parameters
    return {name: each.default for name, each in parameters.items()} | dict(benchmark.parameters)


def check(benchmark: Benchmark) -> None:
    """Check name, dataset, number of samples and parameters. Raises BadBenchmark."""
    found = find(benchmark.name)
    _check_dataset(found, benchmark)
    if benchmark.num_samples is not None and not 1 <= benchmark.num_samples <= MOST_SAMPLES:
        raise BadBenchmark(
            "num_samples",
            f"num_samples {benchmark.num_samples} is not from 1 to {MOST_SAMPLES}; leave it out for all records",
        )
    for name, value in benchmark.parameters.items():
        if name not in found.parameters:
            known = ", ".join(found.parameters) or "none"
            raise BadBenchmark(f"parameters.{name}", f"{found.name} has no parameter {name[:64]!r}; known: {known}")
        found.parameters[name].check(value)
    if found.generates:
        sampling.check(benchmark.parameters)
    _check_regex(benchmark)
    _check_reward(benchmark)
    if found.name == JUDGE:
        judging.check(benchmark.parameters, values(benchmark))
    if found.name == LM_EVAL and benchmark.parameters.get(TASK_DIR) is None:
        raise BadBenchmark(
            f"parameters.{TASK_DIR}",
            f"{benchmark.name} needs {TASK_DIR}, a directory with the task's YAML file and its data: jobs fetch "
            "nothing from the hub. Copy the harness's own tasks there, too, with dataset_path: json and "
            "dataset_kwargs.data_files",
        )


def check_all(benchmarks: Iterable[Benchmark]) -> None:
    """Check each, and that their labels differ. Raises BadBenchmark; its ``field`` begins with the number from 0."""
    labels: dict[str, int] = {}
    for number, benchmark in enumerate(benchmarks):
        try:
            check(benchmark)
        except BadBenchmark as error:
            raise BadBenchmark(f"{number}.{error.field}", error.message) from None
        first = labels.setdefault(label(benchmark.name), number)
        if first != number:
            raise BadBenchmark(
                f"{number}.name",
                f"benchmarks {first} and {number} are both {label(benchmark.name)}: measure the second dataset in an "
                "evaluation of its own",
            )


def files(benchmark: Benchmark) -> list[tuple[str, str]]:
    """(location, field) of user code that a checked benchmark runs: a file, or the directory of a task."""
    if find(benchmark.name).name == CUSTOM:
        return [(argument(benchmark.name), "name")]
    if find(benchmark.name).name == LM_EVAL:
        return [(str(benchmark.parameters[TASK_DIR]), f"parameters.{TASK_DIR}")]
    kind, path = reward_kind(str(benchmark.parameters.get(REWARD, "")))
    is_file = benchmark.name == REWARD and kind == FILE and path
    return [(path, f"parameters.{REWARD}")] if is_file else []


def _check_dataset(found: BenchmarkType, benchmark: Benchmark) -> None:
    if benchmark.dataset is None and found.reads_dataset:
        raise BadBenchmark("dataset", f"{benchmark.name} needs a dataset, whose records have {_listed(found.columns)}")
    if benchmark.dataset is not None and not found.reads_dataset:
        raise BadBenchmark(
            "dataset", f"{benchmark.name} reads the data that the task's YAML file names; leave dataset out"
        )


def _check_regex(benchmark: Benchmark) -> None:
    if benchmark.name == REGEX and {"answer", "pattern"} <= set(benchmark.parameters):
        raise BadBenchmark(
            "parameters.answer",
            "answer names the column with the patterns, and pattern is one for all records; leave one of them out",
        )


def _check_reward(benchmark: Benchmark) -> None:
    if benchmark.name != REWARD:
        return
    if {REWARD, REWARD_MODEL} <= set(benchmark.parameters):
        raise BadBenchmark(
            f"parameters.{REWARD}",
            f"{REWARD} has no effect with {REWARD_MODEL}, which judges by itself; leave one of them out",
        )
    if not str(benchmark.parameters.get(REWARD_MODEL, REWARD)).strip():
        raise BadBenchmark(f"parameters.{REWARD_MODEL}", f"{REWARD_MODEL} is blank; name a model, or leave it out")
    text = str(values(benchmark)[REWARD])
    kind, rest = reward_kind(text)
    is_wrong_length = kind == LENGTH and not (rest.isdecimal() and 0 < int(rest) <= 2**31)
    if is_wrong_length or (kind == FILE and not rest.endswith(".py")):
        expected = BENCHMARKS[REWARD].parameters[REWARD].meaning
        raise BadBenchmark(f"parameters.{REWARD}", f"{REWARD} {text[:64]!r} is none of {expected}")


def _is_python_file(location: str) -> bool:
    is_absolute = location.startswith("/") or _URI.match(location) is not None
    path = PurePosixPath(location)
    return is_absolute and path.suffix == ".py" and bool(path.stem.strip(". "))


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(columns)
