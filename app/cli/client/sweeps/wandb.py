"""Sweep files of Weights & Biases, translated to documents of ours; what has no translation is an error.

Their format: https://docs.wandb.ai/models/sweeps/sweep-config-keys
"""

import copy
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from app.cli.client.sweeps.wandb_parameters import NotTranslated as NotTranslated  # noqa: PLC0414 – raised here, too
from app.cli.client.sweeps.wandb_parameters import parameter, whole

METHODS = {"grid": {"name": "grid", "order": "natural"}, "random": {"name": "random"}, "bayes": {"name": "tpe"}}
_KEYS = ("name", "method", "metric", "parameters", "early_terminate", "run_cap", "program", "command")
# Of their service and its pages.
_WITHOUT_EFFECT = ("project", "entity", "description")
_OF_METRIC = ("name", "goal", "target")
_OF_HYPERBAND = ("type", "min_iter", "max_iter", "s", "eta", "strict")
_INTERPRETERS = ("${env}", "/usr/bin/env", "${interpreter}", "python", "python3", "${program}")


def translated(
    config: Mapping[str, Any], job: Mapping[str, Any], *, default_name: str
) -> tuple[dict[str, Any], list[str]]:
    """The document, and warnings of keys without effect. ``job`` is the trials' job document.

    Raises NotTranslated.
    """
    _only(config, (*_KEYS, *_WITHOUT_EFFECT), "")
    trial_job = {name: value for name, value in copy.deepcopy(dict(job)).items() if name != "name"}
    is_script = _framework(trial_job).get("type") == "CUSTOM"
    raw = _mapping(config.get("parameters"), "parameters")
    document: dict[str, Any] = {
        "name": str(config.get("name") or job.get("name") or default_name),
        "job": trial_job,
        "parameters": {name: parameter(str(name), value) for name, value in raw.items()},
        "method": METHODS[_choice(config.get("method"), tuple(METHODS), "method")],
        **_objective(config, is_script=is_script),
    }
    if is_script:
        _pass_arguments(config, trial_job, list(raw))
    elif {"program", "command"} & config.keys():
        raise NotTranslated("program: the job's framework runs its own trainer; leave program and command out")
    _early_stopping(config, document)
    if config.get("method") != "grid" and "max_trials" not in document["budget"]:
        raise NotTranslated("run_cap: is missing, and a sweep ends by itself; set the most trials")
    warnings = [f"{key}: has no effect here" for key in _WITHOUT_EFFECT if key in config]
    return document, warnings


def _objective(config: Mapping[str, Any], *, is_script: bool) -> dict[str, Any]:
    """``objective`` and ``budget``. As many trials run at a time as can start: agents decide it there."""
    metric = _mapping(config.get("metric"), "metric")
    _only(metric, _OF_METRIC, "metric.")
    name = metric.get("name")
    if not isinstance(name, str) or not name:
        raise NotTranslated("metric.name: is missing: it is what counts")
    budget: dict[str, Any] = {"parallel_trials": "free"}
    if "run_cap" in config:
        budget["max_trials"] = whole(config["run_cap"], "run_cap")
    if "target" in metric:
        budget["target"] = metric["target"]
    goal = _choice(metric.get("goal", "minimize"), ("minimize", "maximize"), "metric.goal")
    return {"objective": {"metric": name if is_script else _of_trainer(name), "goal": goal}, "budget": budget}


def _of_trainer(metric: str) -> str:
    """The integration of transformers logs `eval/loss` and `train/loss` for what is called eval_loss and loss here."""
    part, _, rest = metric.partition("/")
    return {"eval": f"eval_{rest}", "train": rest}.get(part, metric) if rest else metric


def _early_stopping(config: Mapping[str, Any], document: dict[str, Any]) -> None:
    """Their hyperband compares every run at every bracket, which is asha here."""
    if config.get("early_terminate") is None:
        return
    rule = _mapping(config["early_terminate"], "early_terminate")
    _only(rule, _OF_HYPERBAND, "early_terminate.")
    _choice(rule.get("type"), ("hyperband",), "early_terminate.type")
    if rule.get("strict"):
        raise NotTranslated("early_terminate.strict: has no translation; leave it out")
    eta = whole(rule.get("eta", 3), "early_terminate.eta", least=2)
    brackets = whole(rule["s"], "early_terminate.s") if "s" in rule else None
    steps = _max_steps(document["job"])
    if "max_iter" in rule:
        last = whole(rule["max_iter"], "early_terminate.max_iter")
        if brackets is None:
            raise NotTranslated("early_terminate.s: is missing; max_iter needs the number of brackets")
        first = max(1, last // eta**brackets)
    else:
        first = whole(rule.get("min_iter"), "early_terminate.min_iter")
        last = first * eta**brackets if brackets is not None else steps or 0
        if not last:
            raise NotTranslated(
                "early_terminate.s: is missing, and the job has no hyperparameter max_steps; set one of them: rungs "
                "need an end"
            )
    document["early_stopping"] = {
        "name": "asha",
        "unit": "steps",
        "min": first,
        "max": min(last, steps) if steps else last,
        "reduction": eta,
    }


def _max_steps(job: Mapping[str, Any]) -> int | None:
    given = str(((job.get("training_config") or {}).get("hyperparameters") or {}).get("max_steps", ""))
    return int(given) if given.isascii() and given.isdecimal() and int(given) > 0 else None


def _pass_arguments(config: Mapping[str, Any], job: dict[str, Any], names: list[str]) -> None:
    """The script gets `--NAME=VALUE` for each parameter, as from an agent, unless the job refers to values itself."""
    framework = _framework(job)
    if program := config.get("program"):
        given = framework.setdefault("custom_script_path", str(program))
        if PurePath(str(given)).name != PurePath(str(program)).name:
            raise NotTranslated(f"program: is {program}, and the job runs {given}; leave it out")
    dashes, before = _command(config.get("command"))
    arguments = [*(framework.get("custom_arguments") or ()), *before]
    if not any("$(sweep." in str(word) for word in arguments):
        arguments += [f"{dashes}{name}=$(sweep.{name})" for name in names]
    framework["custom_arguments"] = arguments


def _command(command: object) -> tuple[str, list[str]]:
    """What stands before the names of arguments, and the words that the script gets beside them."""
    if command is None:
        return "--", []
    words = [str(word) for word in command] if isinstance(command, list) else []
    forms = [word for word in words if word in ("${args}", "${args_no_hyphens}")]
    if len(forms) != 1 or words[-1] != forms[0]:
        raise NotTranslated("command: must be a list that ends with ${args} or ${args_no_hyphens}; or leave it out")
    rest = [word for word in words[:-1] if word not in _INTERPRETERS]
    if any(word.startswith("${") for word in rest):
        raise NotTranslated(f"command: {next(word for word in rest if word.startswith('${'))} has no translation")
    return ("--" if forms == ["${args}"] else ""), rest


def _framework(job: dict[str, Any]) -> dict[str, Any]:
    training = job.get("training_config")
    framework = training.get("framework") if isinstance(training, dict) else None
    return framework if isinstance(framework, dict) else {}


def _mapping(value: object, field: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise NotTranslated(f"{field}: is missing" if value is None else f"{field}: must be a mapping")
    return value


def _only(given: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
    for key in given:
        if key not in known:
            raise NotTranslated(f"{prefix}{key}: has no translation; known: {', '.join(known)}")


def _choice(value: object, known: tuple[str, ...], field: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise NotTranslated(f"{field}: {value!r:.80} must be one of {', '.join(known)}")
    return value
