"""Benchmark `judge`: another model says how good an answer is, or which of two is better. Parameters and metrics."""

from collections.abc import Mapping
from typing import Any

from app.domain.evaluations import judge_prompts
from app.domain.evaluations.metric import MetricDefinition
from app.domain.evaluations.parameters import BadBenchmark, BenchmarkParameter
from app.domain.spec.rules.inference import MOST_ANSWER_TOKENS

JUDGE = "judge"
SERVICE, MODEL, MAX_TOKENS = "service", "model", "max_tokens"
SCORE, PASSED, UNJUDGED = "score", "passed", "unjudged"
WIN_RATE, TIES, CONSISTENCY, FIRST_SHARE = "win_rate", "ties", "consistency", "first_share"
MOST_LABELS = 32
MOST_AT_ONCE = 32  # as many requests of a job are at the gateway
SHORTEST_WITH_REASON = 128  # tokens
LONGEST_VERDICT = 1024  # tokens, where nothing says otherwise
_LARGEST_SCORE = 1e6

METRICS = (
    MetricDefinition(SCORE),
    MetricDefinition(PASSED, is_binary=True),
    MetricDefinition(WIN_RATE),
    MetricDefinition(TIES, is_binary=True, larger_is_better=None),
    MetricDefinition(CONSISTENCY, is_binary=True),
    MetricDefinition(FIRST_SHARE, larger_is_better=None),
    MetricDefinition(UNJUDGED, is_binary=True, larger_is_better=False),
)
_OF_SCORES, _OF_LABELS = (SCORE, UNJUDGED), (PASSED, UNJUDGED)
_OF_PAIRS = (WIN_RATE, TIES, CONSISTENCY, FIRST_SHARE, UNJUDGED)

PARAMETERS = (
    BenchmarkParameter(
        SERVICE, "text", None, "The service of the project that judges; this or model is required", shortest=1
    ),
    BenchmarkParameter(
        MODEL, "text", None, "The judge by any other name that requests to /v1/chat/completions use", shortest=1
    ),
    BenchmarkParameter(
        "baseline",
        "text",
        None,
        "The column with another answer: the judge says which of both is better, asked twice with sides swapped",
        shortest=1,
    ),
    BenchmarkParameter(
        "reference", "text", None, "The column with a right answer, which the judge is shown", shortest=1
    ),
    BenchmarkParameter(
        "criteria", "text", judge_prompts.CRITERIA, "What makes an answer good, as {{criteria}}", shortest=1
    ),
    BenchmarkParameter(
        "template",
        "text",
        None,
        "The request to the judge in place of ours, with {{prompt}}, {{answer}}, {{reference}}, {{criteria}} and "
        "{{COLUMN}}; with baseline {{answer_a}} and {{answer_b}} in place of {{answer}}",
        shortest=1,
    ),
    BenchmarkParameter("min_score", "float", 1.0, "The score of the worst answer", -_LARGEST_SCORE, _LARGEST_SCORE),
    BenchmarkParameter("max_score", "float", 10.0, "The score of the best answer", -_LARGEST_SCORE, _LARGEST_SCORE),
    BenchmarkParameter(
        "labels", "texts", (), "The judge gives one of these labels in place of a score", most=MOST_LABELS
    ),
    BenchmarkParameter("passing", "texts", (), "Those of labels with which an answer passes", most=MOST_LABELS),
    BenchmarkParameter(
        "pattern",
        "text",
        None,
        "The verdict is group 1 of the last match of this regular expression in RE2's syntax; without it the judge has "
        "to write JSON. It needs a template that says what to write",
        shortest=1,
    ),
    BenchmarkParameter("reason", "bool", True, "The judge writes its reason before its verdict; only without pattern"),
    BenchmarkParameter(
        MAX_TOKENS, "int", LONGEST_VERDICT, "Where the judge is cut off, in tokens", 16, MOST_ANSWER_TOKENS
    ),
    BenchmarkParameter(
        "max_share", "float", 0.05, "Above this share of samples without verdict the evaluation fails", 0, 1
    ),
    BenchmarkParameter("at_once", "int", 16, "How many requests the judge gets at the same time", 1, MOST_AT_ONCE),
)
_SCALE = ("min_score", "max_score")
_LISTS = ("labels", "passing")


def is_pairwise(parameters: Mapping[str, Any]) -> bool:
    """Whether the answer is compared with another one."""
    return parameters.get("baseline") is not None


def judge_of(parameters: Mapping[str, Any]) -> str:
    """The judge's name in requests."""
    return str(parameters.get(SERVICE) or parameters.get(MODEL) or "")


def metrics_of(parameters: Mapping[str, Any]) -> tuple[MetricDefinition, ...]:
    """Those that are measured with these parameters."""
    names = _OF_PAIRS if is_pairwise(parameters) else _OF_LABELS if parameters.get("labels") else _OF_SCORES
    return tuple(each for each in METRICS if each.name in names)


def check(given: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Refuse parameters that contradict each other; each is of its kind, and ``values`` has defaults for the others.

    Raises BadBenchmark.
    """
    _check_judge(given)
    _check_template(given, values)
    _check_verdict(given, values)
    _check_labels(values)


def _check_judge(given: Mapping[str, Any]) -> None:
    named = [name for name in (SERVICE, MODEL) if name in given]
    if not named:
        raise _bad(SERVICE, "nothing says which model judges: name a service of the project")
    if len(named) > 1:
        raise _bad(MODEL, f"{SERVICE} and {MODEL} both say which model judges; leave one of them out")
    if not str(given[named[0]]).strip():
        raise _bad(named[0], f"{named[0]} is blank; name a service of the project")


def _check_template(given: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    template = values["template"]
    if template is None:
        return
    names = judge_prompts.placeholders(template)
    needed = judge_prompts.SIDES if is_pairwise(values) else (judge_prompts.ANSWER,)
    for name in needed:
        if name not in names:
            raise _bad("template", f"the template does not show the judge {{{{{name}}}}}; add it")
    if not is_pairwise(values) and (side := next((each for each in judge_prompts.SIDES if each in names), None)):
        raise _bad("template", f"{{{{{side}}}}} is for two answers; name the column with the other one in baseline")
    for name in ("reference", "criteria"):
        if name in given and name not in names:
            raise _bad(name, f"{name} has no effect with a template without {{{{{name}}}}}; leave one of them out")


def _check_verdict(given: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    if values["pattern"] is not None:
        if values["template"] is None:
            raise _bad("pattern", "pattern needs a template that says what the judge has to write; add one")
        if "reason" in given:
            raise _bad("reason", "reason has no effect with pattern; say in the template what the judge has to write")
    elif values["reason"] and values["max_tokens"] < SHORTEST_WITH_REASON:
        raise _bad(
            "max_tokens",
            f"max_tokens {values['max_tokens']} leaves no room for a reason before the verdict; raise it to "
            f"{SHORTEST_WITH_REASON} or more, or set reason to false",
        )
    if values["min_score"] >= values["max_score"]:
        low, high = values["min_score"], values["max_score"]
        raise _bad("min_score", f"min_score {low:g} is not below max_score {high:g}; the worst answer has the lower")


def _check_labels(values: Mapping[str, Any]) -> None:
    labels, passing = values["labels"], values["passing"]
    of_pairs = (*_SCALE, *_LISTS)
    without = of_pairs if is_pairwise(values) else _SCALE if labels else ()
    default = {each.name: each.default for each in PARAMETERS}
    for name in without:
        if values[name] != default[name]:
            instead = "baseline, where the judge names the better answer" if is_pairwise(values) else "labels"
            raise _bad(name, f"{name} has no effect with {instead}; leave it out")
    if not labels and not passing:
        return
    known = {folded(each) for each in labels}
    if len(known) < len(labels) or len(known) < 2:
        raise _bad("labels", "labels must be two or more that differ in more than case and surrounding space")
    if unknown := next((each for each in passing if folded(each) not in known), None):
        raise _bad("passing", f"{unknown[:64]!r} is none of labels")
    if not passing or len({folded(each) for each in passing}) == len(known):
        raise _bad("passing", "passing must be some of labels, and not all of them, for answers to pass or fail")


def folded(label: str) -> str:
    """A label without what does not distinguish labels."""
    return label.strip().casefold()


def _bad(name: str, message: str) -> BadBenchmark:
    return BadBenchmark(f"parameters.{name}", message)
