"""Metrics that trials are compared by, as clients name them, programs print them and trainers measure them. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from app.domain.spec import metrics
from app.domain.spec.hyperparameters import rlhf
from app.domain.sweeps import benchmarks
from app.domain.sweeps.results import REPORT

KEPT_FOR_VALIDATION = 0.05  # of the data, where nothing else says
_EVALUATION = re.compile(r"(?:eval|val|valid|validation)_")
# What trainers measure under another name, or a number that is smaller exactly where the other is.
_ALSO = {"accuracy": "mean_token_accuracy", "perplexity": "loss"}


def measure(job: dict[str, Any], name: str, pattern: str = "") -> tuple[str, list[str]]:
    """The native name of the metric, and what is to be said about it; the job is changed so that it measures it.

    ``pattern``: of the lines of a program; by default one for `NAME=0.9` and the like.
    """
    training = job["training_config"]
    if training["framework"]["type"] == "CUSTOM":
        if not name.startswith((REPORT, benchmarks.PREFIX)):
            framework = training["framework"]
            framework["config"] = {**framework.get("config", {}), f"metric.{name}": pattern or line_with(name)}
        return name, []
    found, said = of_trainer(training, name), list[str]()
    if found.removeprefix(metrics.EVAL_PREFIX) != _EVALUATION.sub("", name, count=1):
        said.append(f"trials are compared by {found}, which the trainer measures")
    if found.startswith(metrics.EVAL_PREFIX):
        job["data_config"].setdefault("validation_split", KEPT_FOR_VALIDATION)
        said.append(f"{KEPT_FOR_VALIDATION:.0%} of the data are not trained on, but measured with")
    return found, said


def of_trainer(training: Mapping[str, Any], name: str) -> str:
    """What the trainer measures under this name; the name itself where it measures nothing like it."""
    method = rlhf.method_of(training["training_type"], training["hyperparameters"])
    if name in metrics.trained(method):
        return name
    plain = _EVALUATION.sub("", name, count=1)
    known = metrics.evaluated(method)
    found = next((each for each in (plain, _ALSO.get(plain)) if each in known), None)
    return name if found is None else f"{metrics.EVAL_PREFIX}{found}"


def line_with(name: str) -> str:
    """The pattern of a line with `NAME=0.9`, `NAME: 0.9` or `"NAME": 0.9`."""
    literal = re.sub(r"(?=[^\w\s])", r"\\", name, flags=re.ASCII)
    return rf"(?:^|[^\w./-]){literal}[\"']?\s*[=:]\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)"
