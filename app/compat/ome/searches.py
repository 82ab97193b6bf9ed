"""hyperParameterTuningConfig and the native document of its job → the document of a sweep. Pure."""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from app.compat.measured import measure
from app.compat.ome.to_native import NAMING
from app.compat.ome.tuning import FIELD
from app.compat.sweep_naming import SweepNaming, naming_of
from app.domain.errors import BadSpec
from app.domain.spec.rules.training import is_reserved
from app.domain.spec.secrets import is_secret
from app.domain.sweeps.documents import ENVIRONMENT
from app.domain.sweeps.spec import FREE, GRID, RANDOM, TPE, SweepSpec
from app.schemas.spec.field_verdicts import warning
from app.schemas.tuning.sweeps import FailedTrialsSchema

METHODS = {"grid": GRID, "random": RANDOM, "bayes": TPE}
PARAMETERS, METRIC = f"{FIELD}.parameters", f"{FIELD}.metric"
_NAMES = {
    "parameters": PARAMETERS,
    "objective": METRIC,
    "objective.metric": f"{METRIC}.name",
    "training_config.framework.config.metric": f"{METRIC}.name",
    "method": f"{FIELD}.method",
    "budget": f"{FIELD}.maxTrials",
    "budget.max_trials": f"{FIELD}.maxTrials",
}
# The search of a built-in trainer for which none is described, as an example of the documentation has it.
LEARNING_RATES = {"learning_rate": {"type": "double", "min": 1e-5, "max": 1e-3, "scale": "log"}}
_SIZES = {"batch_size": "data_config.batch_size", "max_seq_length": "data_config.max_seq_length"}
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NEGATIVE = re.compile(r"-[\d.]")


class Search(NamedTuple):
    """``names``: native names of the parameters → those of the manifest."""

    spec: SweepSpec
    names: Mapping[str, str]
    naming: SweepNaming
    warnings: list[str]


def search_of(document: Mapping[str, Any], config: Mapping[str, Any]) -> Search:
    """``document`` is the native one of the job without a search; the config has passed `tuning.check`.

    Raises BadSpec for a program without parameters.
    """
    job, warnings = deepcopy(dict(document)), list[str]()
    name, labels = job.pop("name"), job.pop("labels")
    runs_command = job["training_config"]["framework"]["type"] == "CUSTOM"
    parameters = config["parameters"]
    if not parameters:
        if runs_command:
            raise BadSpec("name at least one parameter of the command", field=PARAMETERS)
        parameters = LEARNING_RATES
        warnings.append(warning(PARAMETERS, "none is named: learning_rate varies from 1e-5 to 1e-3 on a log scale"))
    names = _native_names(parameters, runs_command=runs_command)
    if runs_command:
        _refer(job["training_config"]["framework"], names)
    metric, said = measure(job, config["metric"]["name"])
    warnings += [warning(f"{METRIC}.name", why) for why in said]
    raw = {
        "name": name,
        "labels": labels,
        "job": job,
        "parameters": {names[each]: raw for each, raw in parameters.items()},
        "objective": {"metric": metric, "goal": config["metric"]["goal"]},
        "method": {"name": METHODS[config["method"]], "order": "natural"},
        "budget": {"max_trials": config.get("maxTrials"), "parallel_trials": FREE},
        "on_failed_trials": FailedTrialsSchema().load({}),
    }
    shown = {native: each for each, native in names.items()}
    naming = naming_of(NAMING, _NAMES, PARAMETERS, shown)
    return Search(SweepSpec.from_json(raw), shown, naming, warnings)


def _native_names(parameters: Mapping[str, Any], *, runs_command: bool) -> dict[str, str]:
    """Name in the manifest → native name. Raises BadSpec for two with one native name."""
    found: dict[str, str] = {}
    for name in parameters:
        native = _of_command(name) if runs_command else _of_trainer(name)
        if native in found.values():
            raise BadSpec(f"{name[:80]!r} has the same name here as another parameter; rename one", field=PARAMETERS)
        found[name] = native
    return found


def _of_command(name: str) -> str:
    """A variable of the program if that may have the name, else a hyperparameter."""
    name = name.removeprefix("--")
    if _VARIABLE.fullmatch(name) and not is_reserved(name) and not is_secret(name):
        return f"{ENVIRONMENT}{name}"
    return re.sub(r"^(?=\d)", "_", re.sub(r"[^\w-]", "_", name, flags=re.ASCII))


def _of_trainer(name: str) -> str:
    plain = name.removeprefix("--").replace("-", "_")
    return _SIZES.get(plain, plain)


def _refer(framework: dict[str, Any], names: Mapping[str, str]) -> None:
    """Have the words of the command refer to the parameters: as $(NAME), and as --NAME where that is an option."""
    # The same name first, then one that differs by - and _ only.
    options = {_option(name): _reference(native) for name, native in names.items()}
    options |= {name: _reference(native) for name, native in names.items()}
    words = [_named(word, names) for word in framework["custom_command"]]
    framework["custom_command"] = list(_optioned(words, options))


def _named(word: str, names: Mapping[str, str]) -> str:
    """$(NAME) of a variable is replaced when the program starts; the others by the sweep."""
    for name, native in names.items():
        if not native.startswith(ENVIRONMENT):
            # A reference has no backslash, which a replacement would take for more than itself.
            word = re.sub(rf"(?<!\$)\$\({re.escape(name)}\)", _reference(native), word)
    return word


def _optioned(words: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """`--NAME VALUE` and `--NAME=VALUE` of a parameter become `--NAME=` and a reference to it."""
    found, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        option, equals, _ = word.partition("=")
        reference = options.get(option.removeprefix("--")) or options.get(_option(option))
        if reference is None or not word.startswith("--"):
            found.append(word)
            continue
        found.append(f"{option}={reference}")
        if not equals and rest and (not rest[0].startswith("-") or _NEGATIVE.match(rest[0])):
            rest.pop(0)
    return found


def _option(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def _reference(native: str) -> str:
    is_variable = native.startswith(ENVIRONMENT)
    return f"$({native.removeprefix(ENVIRONMENT)})" if is_variable else f"$(sweep.{native})"
