"""The regular expressions of benchmarks: `regex` and `judge` with a pattern, and rewards that are one."""

from app.domain.errors import BadSpec
from app.domain.evaluations.catalog import REWARD
from app.domain.evaluations.judging import JUDGE
from app.domain.evaluations.rules import benchmarks_of
from app.domain.spec.hyperparameters.parameter import InvalidHyperparameter
from app.domain.spec.hyperparameters.rlhf import REGEX, reward_kind
from app.domain.spec.inference import Benchmark
from app.domain.spec.model import JobDocument
from app.patterns.rewards import compiled

NO_GROUP = "the pattern has no group; put what the verdict is in parentheses, as in Score: ([0-9]+)"
_PATTERN = "pattern"


def refuse_bad_patterns(document: JobDocument) -> None:
    """Check the patterns of an otherwise valid document. Raises BadSpec."""
    for field, benchmarks in benchmarks_of(document):
        for number, benchmark in enumerate(benchmarks):
            name, pattern = _pattern_of(benchmark)
            try:
                if pattern and not compiled(pattern).groups and benchmark.name == JUDGE:
                    raise BadSpec(NO_GROUP, field=f"{field}.{number}.parameters.{name}")
            except InvalidHyperparameter as error:
                message = error.message.removeprefix(f"{error.name} ")
                raise BadSpec(message, field=f"{field}.{number}.parameters.{name}") from error


def _pattern_of(benchmark: Benchmark) -> tuple[str, str]:
    """(parameter, its regular expression, or "")."""
    if benchmark.name in (REGEX, JUDGE):
        return _PATTERN, str(benchmark.parameters.get(_PATTERN) or "")
    kind, rest = reward_kind(str(benchmark.parameters.get(REWARD, "")))
    return REWARD, rest if benchmark.name == REWARD and kind == REGEX else ""
