"""policies.auto_search and its training job → the document of a sweep. Pure."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from app.compat.measured import measure
from app.compat.modelarts.algorithms import ALGORITHMS, NUM_SAMPLES, Algorithm
from app.compat.modelarts.to_native import NAMING, Native
from app.compat.sweep_naming import SweepNaming, naming_of
from app.domain.errors import BadSpec
from app.domain.sweeps.documents import wire_text
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.spec import FREE, GRID, SweepSpec
from app.schemas.spec.field_verdicts import warning
from app.schemas.tuning.sweeps import FailedTrialsSchema

FIELD = "algorithm.policies.auto_search"
PARAMETERS, REWARDS, CONFIGS = (f"{FIELD}.{name}" for name in ("search_params", "reward_attrs", "algo_configs"))
_NAMES = {
    "parameters": PARAMETERS,
    "objective": REWARDS,
    "training_config.framework.config.metric": f"{REWARDS}.regex",
    "method": CONFIGS,
    "budget": CONFIGS,
    "budget.max_trials": f"{CONFIGS}.params.{NUM_SAMPLES}",
    "method.startup_trials": f"{CONFIGS}.params.n_initial_points",
    "method.avg_best_idx": f"{CONFIGS}.params.avg_best_idx",
    "method.shrink_coef": f"{CONFIGS}.params.shrink_coef",
}
# Parameters of a built-in method that are no hyperparameters.
_FIELDS = {"base_model": "training_config.base_model.model_id"}
_GOALS = {"max": "maximize", "min": "minimize"}
_MOST_POINTS = 1_000


class Search(NamedTuple):
    """``names``: native names of the parameters → those of the request."""

    spec: SweepSpec
    names: Mapping[str, str]
    naming: SweepNaming
    warnings: list[str]


class _Parameter(NamedTuple):
    native: str
    space: dict[str, Any]
    field: str


def search_of(job: Mapping[str, Any], translate: Callable[[Mapping[str, Any]], Native]) -> tuple[Native, Search]:
    """The job with references to what varies, and its search; ``translate`` is that of jobs. Raises InvalidRequest."""
    auto = job["algorithm"]["policies"]["auto_search"]
    found, warnings = _parameters(job["algorithm"], auto)
    native = translate(_referring(job, found))
    document = deepcopy(native.document)
    name = document.pop("name")
    if "preemptible" not in ((job.get("spec") or {}).get("schedule_policy") or {}):
        del document["scheduling_config"]["preemptible"]  # trials give way to other jobs
    objectives, more = _objectives(document, auto)
    method, budget, kept = _method(auto, found)
    raw = {
        "name": name,
        "job": document,
        "parameters": {each.native: each.space for each in found.values()},
        "objective": objectives,
        "method": method,
        "budget": {**budget, "parallel_trials": FREE},
        "on_failed_trials": FailedTrialsSchema().load({}),
    }
    names = {each.native: name for name, each in found.items()}
    naming = naming_of(NAMING, _NAMES, PARAMETERS, names)
    return native, Search(SweepSpec.from_json(raw), names, naming, [*warnings, *more, *kept])


def _parameters(algorithm: Mapping[str, Any], auto: Mapping[str, Any]) -> tuple[dict[str, _Parameter], list[str]]:
    """By name, without those that are skipped: these keep their values."""
    skipped = [name.strip() for name in (auto.get("skip_search_params") or "").split(",") if name.strip()]
    found: dict[str, _Parameter] = {}
    listed = auto.get("search_params") or []
    for number, each in enumerate(listed):
        name, field = each["name"], f"{PARAMETERS}.{number}"
        if name in skipped:
            continue
        native = _native_name(name, is_built_in=bool(algorithm.get("id")))
        if native in (one.native for one in found.values()):
            raise BadSpec(
                f"{name[:80]!r} has the same name here as another parameter; rename one", field=f"{field}.name"
            )
        found[name] = _Parameter(native, _space(each, field, in_shell=bool(algorithm.get("command"))), field)
    if not found:
        raise BadSpec("name at least one parameter that is not skipped", field=PARAMETERS)
    named = {each["name"] for each in [*listed, *(algorithm.get("parameters") or [])]}
    unknown = [name for name in skipped if name not in named]
    why = f"{', '.join(unknown)[:200]}: there is no such parameter"
    return found, [warning(f"{FIELD}.skip_search_params", why)] if unknown else []


def _native_name(name: str, *, is_built_in: bool) -> str:
    if is_built_in:
        return _FIELDS.get(name, name)
    return re.sub(r"^(?=[\d-])", "_", re.sub(r"[^\w-]", "_", name, flags=re.ASCII))


def _space(given: Mapping[str, Any], field: str, *, in_shell: bool) -> dict[str, Any]:
    """What the parameter may be, as the native document has it. Raises BadSpec."""
    if given["param_type"] == "continuous":
        return _continuous(given, field)
    texts = given.get("discrete_values") or []
    if not texts:
        raise BadSpec("is needed: the values of a discrete parameter", field=f"{field}.discrete_values")
    if len(set(texts)) < len(texts):
        raise BadSpec("lists a value twice; leave one of them out", field=f"{field}.discrete_values")
    if in_shell and any("'" in text for text in texts):
        raise BadSpec("may have no ' in its values, which a command quotes by it", field=f"{field}.discrete_values")
    values, kind = _typed(texts)
    return {"type": kind, "values": values}


def _continuous(given: Mapping[str, Any], field: str) -> dict[str, Any]:
    low, high = (_number(given, bound, field) for bound in ("lower_bound", "upper_bound"))
    if low > high:
        raise BadSpec("must not be above upper_bound", field=f"{field}.lower_bound")
    points = given.get("discrete_points_num")
    if not points:
        return {"type": "double", "min": low, "max": high}
    if not (points.isdecimal() and 1 <= int(points[:9]) <= _MOST_POINTS):
        raise BadSpec(f"must be a number from 1 to {_MOST_POINTS}", field=f"{field}.discrete_points_num")
    return _points(low, high, int(points), are_whole=all(_is_whole(given[b]) for b in ("lower_bound", "upper_bound")))


def _points(low: float, high: float, count: int, *, are_whole: bool) -> dict[str, Any]:
    """So many values at equal distances; whole numbers where both bounds and all of them are."""
    step = (high - low) / max(1, count - 1)
    # Without the last digits, which no sum of floats has right; the ends are as they are given.
    inner = [float(f"{low + number * step:.12g}") for number in range(1, count - 1)]
    values = list(dict.fromkeys([low, *inner, high][:count]))
    if are_whole and all(value == int(value) for value in values):
        return {"type": "int", "values": [int(value) for value in values]}
    return {"type": "double", "values": values}


def _number(given: Mapping[str, Any], name: str, field: str) -> float:
    try:
        found = float(given.get(name) or "")
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise BadSpec("is needed: a number, as text", field=f"{field}.{name}")
    return found


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"[-+]?\d{1,15}", text) is not None


def _typed(texts: Sequence[str]) -> tuple[list[Value], str]:
    """The values as numbers, or true and false, where all of them are written as the platform writes such."""
    booleans: list[Value] = [text == "true" for text in texts]
    if [wire_text(value) for value in booleans] == list(texts):
        return booleans, "bool"
    for kind, read in (("int", int), ("double", float)):
        try:
            values: list[Value] = [read(text) for text in texts]
        except ValueError:
            continue
        if [wire_text(value) for value in values] == list(texts) and all(map(math.isfinite, map(float, texts))):
            return values, kind
    return list(texts), "categorical"


def _referring(job: Mapping[str, Any], found: Mapping[str, _Parameter]) -> dict[str, Any]:
    """The job whose parameters refer to what varies, each in the place of its value, or at the end."""
    algorithm = job["algorithm"]
    given = {each["name"]: each for each in algorithm.get("parameters") or []}
    if algorithm.get("id"):
        # The trial's value is set in the document; a built-in method without any base model would be refused.
        rest = {name: each for name, each in given.items() if name not in found or name in _FIELDS}
        for name in _FIELDS.keys() & found.keys() - rest.keys():
            rest[name] = {"name": name, "value": str(found[name].space["values"][0])}
    else:
        rest = given | {name: {"name": name, "value": f"$(sweep.{each.native})"} for name, each in found.items()}
    return {**job, "algorithm": {**algorithm, "parameters": [*rest.values()]}}


def _objectives(document: dict[str, Any], auto: Mapping[str, Any]) -> tuple[list[dict[str, str]], list[str]]:
    """The objectives; the document is changed so that it measures them."""
    rewards = auto.get("reward_attrs") or []
    if not rewards:
        raise BadSpec("name a metric that trials are compared by", field=REWARDS)
    found, warnings = [], []
    for number, each in enumerate(rewards):
        field = f"{REWARDS}.{number}"
        metric, said = measure(document, each["name"], each.get("regex") or "")
        if document["training_config"]["framework"]["type"] != "CUSTOM" and each.get("regex"):
            warnings.append(warning(f"{field}.regex", "a built-in method measures it itself"))
        warnings += [warning(f"{field}.name", why) for why in said]
        found.append({"metric": metric, "goal": _GOALS[each["mode"]]})
    return found, warnings


def _method(
    auto: Mapping[str, Any], found: Mapping[str, _Parameter]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """`method` and `budget`, and warnings of options that have no effect. Without an algorithm all points are tried."""
    configs = auto.get("algo_configs") or []
    if not configs:
        for each in found.values():
            if "values" not in each.space:
                why = "is needed without algo_configs, because all points are tried then"
                raise BadSpec(why, field=f"{each.field}.discrete_points_num")
        return {"name": GRID, "order": "natural"}, {}, []
    if len(configs) > 1:
        raise BadSpec("name one algorithm", field=f"{CONFIGS}.1")
    algorithm = ALGORITHMS.get(configs[0]["name"])
    if algorithm is None:
        raise BadSpec(f"must be one of {', '.join(ALGORITHMS)}", field=f"{CONFIGS}.0.name")
    return _configured(algorithm, configs[0].get("params") or [])


def _configured(
    algorithm: Algorithm, params: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    method: dict[str, Any] = {"name": algorithm.method}
    budget: dict[str, Any] = {"max_trials": int(algorithm.defaults[NUM_SAMPLES])}
    warnings: list[str] = []
    for number, each in enumerate(params):
        field, key = f"{CONFIGS}.0.params.{number}", each["key"]
        option = algorithm.options.get(key)
        if option is None:
            warnings.append(warning(f"{field}.key", f"{key[:80]} has no effect; it is stored and returned"))
            continue
        try:
            value = option.read(each["value"])
        except ValueError as error:
            raise BadSpec(f"of {key} must be {option.rule}", field=f"{field}.value") from error
        (budget if option.native == "max_trials" else method)[option.native] = value
    return method, budget, warnings
