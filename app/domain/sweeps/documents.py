"""The job document of a trial: the sweep's job with the values of its parameters."""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app.domain.errors import BadSpec
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.spec.hyperparameters.tables import PLATEAU
from app.domain.spec.metrics import EVAL_PREFIX
from app.domain.spec.model import BEST
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.population import halts_of_members
from app.domain.sweeps.promotions import halts_of
from app.domain.sweeps.spec import NONE, TOKENS, EarlyStopping, Method

ENVIRONMENT = "environment."
REFERENCE = re.compile(r"\$\(sweep\.([\w.-]+)\)", re.ASCII)
_SCHEDULING = "scheduling_config"
# Fields of framework in which a script's words may refer to values.
WORDS = ("custom_arguments", "custom_command")


def trial_document(
    job: Mapping[str, Any], values: Mapping[str, Value], *, name: str, labels: Mapping[str, str]
) -> dict[str, Any]:
    """A new document; ``labels`` are added to those of the job. Raises TypeError and ValueError for a job that has
    not the shape of a document.
    """
    document: dict[str, Any] = copy.deepcopy(dict(job))
    document["name"] = name
    document["labels"] = {**(document.get("labels") or {}), **labels}
    _resolve(document, values)
    for path, value in values.items():
        *parents, last = path_of(path).split("/")
        node = _node(document, parents)
        is_text = parents[-1:] in (["hyperparameters"], ["environment"])
        _set(node, last, wire_text(value) if is_text else value)
    return document


def path_of(name: str) -> str:
    """Where the value of a parameter stands, with / between its parts, because names may contain dots."""
    if name.startswith(ENVIRONMENT):
        return f"training_config/environment/{name.removeprefix(ENVIRONMENT)}"
    return name.replace(".", "/") if "." in name else f"training_config/hyperparameters/{name}"


def wire_text(value: Value) -> str:
    """The value as text, as hyperparameters and variables have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def references(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, field) of every $(sweep.NAME) in the words of a script."""
    framework = _object(_object(job, "training_config"), "framework")
    for key in WORDS:
        for i, word in enumerate(framework.get(key) or ()):
            for found in REFERENCE.finditer(str(word)):
                yield found[1], f"job.training_config.framework.{key}.{i}"


def with_scheduling(job: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The job without its name, which trials have of their own, and with defaults for its scheduling."""
    found: dict[str, Any] = copy.deepcopy({name: value for name, value in job.items() if name != "name"})
    found[_SCHEDULING] = {**defaults, **_object(found, _SCHEDULING)}
    return found


def with_priority(job: Mapping[str, Any], priority: int) -> dict[str, Any]:
    return {**job, _SCHEDULING: {**_object(job, _SCHEDULING), "priority": priority}}


def with_evaluation(job: Mapping[str, Any], rule: EarlyStopping) -> dict[str, Any]:
    """The job with an evaluation at every rung, unless it says itself when it evaluates, runs a script, or has rungs of
    tokens, whose steps are not known before.

    By default a training evaluates when it saves a checkpoint, which may be long after the first rung.
    """
    found = copy.deepcopy(dict(job))
    training = _object(found, "training_config")
    is_planned = training.get("evaluation") is not None or not training
    if rule.name == NONE or rule.unit == TOKENS or runs_script(job) or is_planned:
        return found
    training["evaluation"] = (
        {"strategy": "epoch"} if rule.unit == "epochs" else {"strategy": "steps", "steps": rule.min}
    )
    return found


def with_all_data(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without its validation split, whose records are trained on, and without what needs evaluations.

    Raises BadSpec where nothing is split off, and where the learning rate follows evaluations.
    """
    found: dict[str, Any] = copy.deepcopy(dict(document))
    data, training = _object(found, "data_config"), _object(found, "training_config")
    if not data.get("validation_split"):
        raise BadSpec(
            "the job splits nothing off for validation; leave it out, or write the document to a file and change its "
            "sources there",
            field="data_config.validation_split",
        )
    hyperparameters = _object(training, "hyperparameters")
    if hyperparameters.get("lr_scheduler_type") == PLATEAU and not runs_script(found):
        raise BadSpec(
            f"{PLATEAU} lowers the learning rate by evaluations, which a training on all data does not make; leave "
            "all data out, or write the document to a file and choose another schedule there",
            field="training_config.hyperparameters.lr_scheduler_type",
        )
    data["validation_split"] = 0.0
    training["evaluation"] = None
    for name in ("early_stopping_patience", "early_stopping_threshold", "load_best_model_at_end"):
        hyperparameters.pop(name, None)
    checkpoint = _object(_object(found, "output_config"), "checkpoint")
    metric = checkpoint.get("metric_for_best_model")
    if not metric or metric.startswith(EVAL_PREFIX):  # no checkpoint is known to be the best
        unknown = {"metric_for_best_model": None, "greater_is_better": None, "resume_from_best": False}
        checkpoint |= {name: value for name, value in unknown.items() if name in checkpoint}
        if planned := training.get("evaluations"):
            training["evaluations"] = [each for each in planned if each.get("on") != BEST]
    return found


def runs_script(job: Mapping[str, Any]) -> bool:
    """Whether the job runs a script, of whose steps the platform knows nothing before they are made."""
    return bool(_object(_object(job, "training_config"), "framework").get("type") == CUSTOM)


def names_halts(job: Mapping[str, Any]) -> bool:
    """Whether the job says itself where it halts."""
    return _object(job, "training_config").get("halt_at") is not None


def with_halts(document: dict[str, Any], rule: EarlyStopping, bracket: int) -> dict[str, Any]:
    """The document of a trial with its halts, if it has any."""
    halts = halts_of(rule, bracket)
    if halts:
        _node(document, ["training_config"])["halt_at"] = {"unit": rule.unit, "at": list(halts)}
    return document


def with_halts_of_member(document: dict[str, Any], method: Method, *, after: int) -> dict[str, Any]:
    """The document of a member of a population, which halts at every interval of its training.

    ``after``: the step that it begins with. Should the checkpoint turn out to be damaged, it begins anew, and has
    nothing to report before that step.
    """
    training = _node(document, ["training_config"])
    halts = halts_of_members(method.interval or 1, int(training["hyperparameters"]["max_steps"]))
    if at := [step for step in halts if step > after]:
        training["halt_at"] = {"unit": "steps", "at": at}
    return document


def with_start(document: dict[str, Any], checkpoint_id: str) -> dict[str, Any]:
    """The document of a trial that begins with a checkpoint."""
    _node(document, ["training_config"])["resume_from_checkpoint"] = checkpoint_id
    return document


def with_own_results(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a trial whose model goes nowhere but to its job's own results, with one checkpoint at a time,
    and which nothing evaluates.
    """
    document["training_config"].pop("evaluations", None)
    output = _node(document, ["output_config"])
    for name in ("output_path", "push_to_hub", "hub_repo_id", "hub_private"):
        output.pop(name, None)
    _node(output, ["checkpoint"])["save_total_limit"] = 1
    return document


def with_saves(job: Mapping[str, Any], steps: Iterable[int]) -> dict[str, Any]:
    """The job with checkpoints after these steps, besides those that it saves at already."""
    found = copy.deepcopy(dict(job))
    checkpoint = _node(found, ["output_config", "checkpoint"])
    checkpoint["save_at"] = sorted({*(checkpoint.get("save_at") or ()), *steps})
    return found


def with_values_at(job: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """The job with other values at dotted paths, such as masks for secrets; paths that it does not have are ignored."""
    found = copy.deepcopy(dict(job))
    for path, value in values.items():
        *parents, last = path.split(".")
        node: Any = found
        for name in parents:
            node = _child(node, name)
        if isinstance(node, dict) and last in node:
            node[last] = value
    return found


def without_paths(job: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The job without what stands at these paths, of `path_of`; those that it does not have are ignored."""
    found = copy.deepcopy(dict(job))
    for path in paths:
        *parents, last = path.split("/")
        node: Any = found
        for name in parents:
            node = _child(node, name)
        if isinstance(node, dict):
            node.pop(last, None)
    return found


def with_words(document: dict[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the words of its script as in ``job``, references and all: each trial replaces them anew."""
    given = _object(_object(job, "training_config"), "framework")
    _object(_object(document, "training_config"), "framework").update(
        {key: given[key] for key in WORDS if given.get(key)}
    )
    return document


def _resolve(document: dict[str, Any], values: Mapping[str, Value]) -> None:
    framework = _object(_object(document, "training_config"), "framework")
    for key in WORDS:
        if framework.get(key):
            framework[key] = [
                REFERENCE.sub(lambda found: wire_text(values[found[1]]), word) if isinstance(word, str) else word
                for word in framework[key]
                if not _names_inactive(word, values)
            ]


def _names_inactive(word: object, values: Mapping[str, Value]) -> bool:
    """A word that refers to a parameter that is not active is left out."""
    return isinstance(word, str) and any(found[1] not in values for found in REFERENCE.finditer(word))


def _child(node: object, name: str) -> object:
    """A field of an object, or an entry of a list; None where there is none."""
    if isinstance(node, list):
        return node[int(name)] if name.isdecimal() and int(name) < len(node) else None
    return node.get(name) if isinstance(node, dict) else None


def _object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _node(document: dict[str, Any], parents: list[str]) -> Any:  # noqa: ANN401 - a node of JSON
    node: Any = document
    for name in parents:
        if isinstance(node, list):
            node = node[int(name)]
        else:
            if node.get(name) is None:
                node[name] = {}
            node = node[name]
    return node


def _set(node: Any, name: str, value: Value) -> None:  # noqa: ANN401 - a node of JSON
    if not isinstance(node, dict):
        raise TypeError(f"{name} is a field of an object")
    node[name] = value
