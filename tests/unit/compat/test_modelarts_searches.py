"""policies.auto_search as the document of a sweep: what varies, how it reaches the script, what counts."""

import shlex
from functools import partial
from typing import Any

import pytest
import yaml
from hypothesis import given, reject
from hypothesis import strategies as st

from app.compat.modelarts.algorithms import ALGORITHMS, TYPE_EN, algorithm_list, template
from app.compat.modelarts.requests import CreateSchema
from app.compat.modelarts.searching.searches import FIELD, Search, search_of
from app.compat.modelarts.to_native import to_native
from app.domain.errors import BadSpec, NotFound
from app.domain.sweeps.documents import trial_document
from app.domain.sweeps.draws import random_values
from app.domain.sweeps.observations import OWN_FAULTS
from app.domain.sweeps.rules import document as rules
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import FailedTrials
from app.http.errors import BadShape
from app.http.request_body import validated
from tests.unit.compat.test_modelarts import ALGORITHM, NODES

REWARD = {"name": "accuracy", "mode": "max", "regex": r"acc: ([\d.]+)"}
RATE = {"name": "lr", "param_type": "continuous", "lower_bound": "0.001", "upper_bound": "0.1"}
SIZE = {"name": "batch_size", "param_type": "discrete", "discrete_values": ["16", "32", "64"]}
TPE = {"name": "tpe_search", "params": [{"key": "num_samples", "value": "12", "type": "Integer"}]}
AUTO = {"reward_attrs": [REWARD], "search_params": [RATE, SIZE], "algo_configs": [TPE]}


def searched(algorithm: dict[str, Any] | None = None, spec: Any = None, **auto: Any) -> Search:
    algorithm = {**(algorithm or ALGORITHM), "policies": {"auto_search": {**AUTO, **auto}}}
    body = {"kind": "job", "metadata": {"name": "minist"}, "algorithm": algorithm, "spec": spec or {}}
    translate = partial(to_native, capacities=NODES, may_read=lambda _path: False)
    return search_of(validated(CreateSchema(), body), translate)[1]


def space_of(**parameter: Any) -> Any:
    """The only parameter of a search."""
    return searched(search_params=[{"name": "x", **parameter}]).spec.parameters["x"]


def framework_of(search: Search, **values: Any) -> Any:
    document = trial_document(search.spec.job, values, name="t", labels={})
    return document["training_config"]["framework"]


def refused_field(**auto: Any) -> str | None:
    try:
        searched(**auto)
    except BadSpec as error:
        return error.field
    except BadShape as error:
        return error.details[0][0]
    return None


def test_search_of_the_documentation_is_a_sweep():
    search = searched()

    spec, space = search.spec, rules.check(search.spec)
    assert (spec.name, spec.method.name, spec.budget.max_trials) == ("minist", "tpe", 12)
    assert (spec.objectives[0].metric, spec.objectives[0].goal) == ("accuracy", "maximize")
    assert spec.job["training_config"]["framework"]["config"] == {"metric.accuracy": r"acc: ([\d.]+)"}
    assert [(each.name, each.type, each.values) for each in space.parameters] == [
        ("batch_size", "int", (16, 32, 64)),
        ("lr", "double", ()),
    ]
    assert (search.warnings, search.names) == ([], {"lr": "lr", "batch_size": "batch_size"})


def test_values_are_arguments_in_the_place_of_their_parameters():
    parameters = [{"name": "lr", "value": "1"}, {"name": "epochs", "value": "3"}]
    search = searched({**ALGORITHM, "inputs": [], "outputs": [], "parameters": parameters})

    assert framework_of(search, lr=0.5, batch_size=16)["custom_arguments"] == [
        "--lr=0.5",
        "--epochs=3",
        "--batch_size=16",
    ]


def test_values_are_words_of_a_command():
    values = ["a b", "$HOME", "c"]
    named = {"name": "kind", "param_type": "discrete", "discrete_values": values}
    search = searched({"code_dir": "obs://b/x/", "command": "python train.py"}, search_params=[named])

    for value in values:
        shell = framework_of(search, kind=value)["custom_command"][-1]
        assert shlex.split(shell) == ["python", "train.py", f"--kind={value}"]
    field = refused_field(
        algorithm={"code_dir": "obs://b/x/", "command": "t"}, search_params=[{**named, "discrete_values": ["a'b"]}]
    )
    assert field == f"{FIELD}.search_params.0.discrete_values"


def test_built_in_method_has_hyperparameters():
    algorithm = {
        "id": "lora",
        "parameters": [{"name": "base_model", "value": "base"}, {"name": "lora_r", "value": "8"}],
        "inputs": [{"name": "data", "remote": {"obs": {"obs_url": "obs://b/train.jsonl"}}}],
    }
    named = [
        {"name": "lora_r", "param_type": "discrete", "discrete_values": ["8", "16"]},
        {"name": "base_model", "param_type": "discrete", "discrete_values": ["one", "two"]},
    ]
    search = searched(algorithm, search_params=named, reward_attrs=[{"name": "loss", "mode": "min", "regex": "x"}])

    rules.check(search.spec)
    values: dict[str, Any] = {"lora_r": 16, "training_config.base_model.model_id": "two"}
    document = trial_document(search.spec.job, values, name="t", labels={})
    assert document["training_config"]["hyperparameters"]["lora_r"] == "16"
    assert document["training_config"]["base_model"]["model_id"] == "two"
    assert search.names["training_config.base_model.model_id"] == "base_model"
    assert [line.partition(":")[0] for line in search.warnings] == [f"{FIELD}.reward_attrs.0.regex"]


@pytest.mark.parametrize(
    ("low", "high", "points", "space"),
    [
        ("0", "1", None, {"type": "double", "min": 0.0, "max": 1.0}),
        ("0", "1", "5", {"type": "double", "values": [0.0, 0.25, 0.5, 0.75, 1.0]}),
        ("0.1", "0.3", "3", {"type": "double", "values": [0.1, 0.2, 0.3]}),
        ("16", "64", "4", {"type": "int", "values": [16, 32, 48, 64]}),
        ("16.0", "64", "2", {"type": "double", "values": [16.0, 64.0]}),
        ("2", "8", "1", {"type": "int", "values": [2]}),
        ("3", "3", "4", {"type": "int", "values": [3]}),
        ("1e-4", "1e-4", "4", {"type": "double", "values": [1e-4]}),
    ],
)
def test_points_of_a_continuous_parameter_are_at_equal_distances(low, high, points, space):
    more = {"discrete_points_num": points} if points else {}

    assert space_of(param_type="continuous", lower_bound=low, upper_bound=high, **more) == space


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1", "2"], "int", [1, 2]),
        (["0.5", "1.0"], "double", [0.5, 1.0]),
        (["true", "false"], "bool", [True, False]),
        (["1e-3", "0.01"], "categorical", ["1e-3", "0.01"]),
        (["01", "2"], "categorical", ["01", "2"]),
        (["adam", "1"], "categorical", ["adam", "1"]),
        (["nan", "inf"], "categorical", ["nan", "inf"]),
    ],
)
def test_discrete_values_reach_the_script_as_they_are_written(texts, kind, values):
    found = space_of(param_type="discrete", discrete_values=texts)

    assert found == {"type": kind, "values": values}


def test_without_an_algorithm_all_points_are_tried():
    search = searched(search_params=[{**RATE, "discrete_points_num": "3"}, SIZE], algo_configs=[])

    assert rules.check(search.spec).size == 9
    assert (search.spec.method.name, search.spec.budget.max_trials) == ("grid", None)
    assert refused_field(algo_configs=[]) == f"{FIELD}.search_params.0.discrete_points_num"


def test_skipped_parameters_keep_their_values():
    parameters = [{"name": "lr", "value": "0.3"}]
    search = searched(
        {**ALGORITHM, "inputs": [], "outputs": [], "parameters": parameters}, skip_search_params="lr, epochs"
    )

    assert list(search.spec.parameters) == ["batch_size"]
    assert framework_of(search, batch_size=16)["custom_arguments"] == ["--lr=0.3", "--batch_size=16"]
    assert search.warnings == [f"{FIELD}.skip_search_params: epochs: there is no such parameter"]


@pytest.mark.parametrize(
    ("name", "params", "method", "options"),
    [
        ("bayes_opt_search", {}, "gp", {}),
        ("tpe_search", {"n_initial_points": "4"}, "tpe", {"startup_trials": 4}),
        (
            "anneal_search",
            {"avg_best_idx": "3.5", "shrink_coef": "0.2"},
            "anneal",
            {"avg_best_idx": 3.5, "shrink_coef": 0.2},
        ),
    ],
)
def test_algorithms_are_methods(name, params, method, options):
    given_params = [{"key": key, "value": value} for key, value in params.items()]
    search = searched(algo_configs=[{"name": name, "params": given_params}])

    rules.check(search.spec)
    assert (search.spec.method.name, search.spec.budget.max_trials) == (method, 20)
    assert {name: getattr(search.spec.method, name) for name in options} == options


def test_options_without_an_effect_are_named():
    params = [{"key": "kappa", "value": "2.5"}, {"key": "num_samples", "value": "3"}]
    search = searched(algo_configs=[{"name": "bayes_opt_search", "params": params}])

    assert search.spec.budget.max_trials == 3
    assert search.warnings == [f"{FIELD}.algo_configs.0.params.0.key: kappa has no effect; it is stored and returned"]


def test_several_rewards_are_several_objectives():
    search = searched(reward_attrs=[REWARD, {"name": "seconds", "mode": "min"}])

    rules.check(search.spec)
    assert [(each.metric, each.goal) for each in search.spec.objectives] == [
        ("accuracy", "maximize"),
        ("seconds", "minimize"),
    ]


def test_trials_give_way_unless_the_job_says_otherwise():
    assert "preemptible" not in searched().spec.job["scheduling_config"]
    fixed = searched(spec={"schedule_policy": {"preemptible": False}})
    assert fixed.spec.job["scheduling_config"]["preemptible"] is False


@pytest.mark.parametrize(
    ("auto", "field"),
    [
        ({"search_params": []}, "search_params"),
        ({"skip_search_params": "lr,batch_size"}, "search_params"),
        ({"search_params": [{**RATE, "lower_bound": "low"}]}, "search_params.0.lower_bound"),
        ({"search_params": [SIZE, {**RATE, "upper_bound": "inf"}]}, "search_params.1.upper_bound"),
        ({"search_params": [{**RATE, "lower_bound": "1"}]}, "search_params.0.lower_bound"),
        ({"search_params": [{**RATE, "discrete_points_num": "0"}]}, "search_params.0.discrete_points_num"),
        ({"search_params": [{**SIZE, "discrete_values": []}]}, "search_params.0.discrete_values"),
        ({"search_params": [{**SIZE, "discrete_values": ["1", "1"]}]}, "search_params.0.discrete_values"),
        ({"search_params": [SIZE, SIZE]}, "search_params.1.name"),
        ({"search_params": [{**SIZE, "param_type": "odd"}]}, "search_params.0.param_type"),
        ({"search_params": [{"name": "x"}]}, "search_params.0.param_type"),
        ({"reward_attrs": []}, "reward_attrs"),
        ({"reward_attrs": [{"name": "x", "mode": "best"}]}, "reward_attrs.0.mode"),
        ({"algo_configs": [{"name": "luck"}]}, "algo_configs.0.name"),
        ({"algo_configs": [TPE, TPE]}, "algo_configs.1"),
        (
            {"algo_configs": [{"name": "tpe_search", "params": [{"key": "num_samples", "value": "many"}]}]},
            "algo_configs.0.params.0.value",
        ),
    ],
)
def test_bad_searches_are_refused_with_their_field(auto, field):
    assert refused_field(**auto) == f"{FIELD}.{field}"


@pytest.mark.parametrize(
    ("native", "field"),
    [
        ("parameters.lr", "search_params.lr"),
        ("objective", "reward_attrs"),
        ("objective.1.metric", "reward_attrs"),
        ("budget.max_trials", "algo_configs.params.num_samples"),
        ("method.name", "algo_configs"),
        ("job.training_config.framework.config.metric.accuracy", "reward_attrs.regex"),
    ],
)
def test_fields_in_errors_are_those_of_the_request(native, field):
    assert searched().naming.field(native) == f"{FIELD}.{field}"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_templates_and_listed_algorithms_are_accepted(name):
    content = yaml.safe_load(template(TYPE_EN, name)["content"])
    listed = next(each for each in algorithm_list()["search_algo_list"] if each["name"] == name)

    search = searched(**content["auto_search"])

    rules.check(search.spec)
    assert content["auto_search"]["algo_configs"] == [{"name": name, "params": listed["params"]}]
    with pytest.raises(NotFound):
        template(TYPE_EN, "luck")


_bounds = st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)).map(sorted)
_texts = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6), min_size=1, unique=True)
_whole = st.lists(st.integers(-9, 99).map(str), min_size=1, unique=True)
_parameters = st.one_of(
    st.builds(
        lambda ends, points: {
            "param_type": "continuous",
            "lower_bound": repr(ends[0]),
            "upper_bound": repr(ends[1]),
            **({"discrete_points_num": str(points)} if points else {}),
        },
        _bounds,
        st.one_of(st.none(), st.integers(1, 50)),
    ),
    st.builds(lambda texts: {"param_type": "discrete", "discrete_values": texts}, st.one_of(_texts, _whole)),
)


@given(
    st.dictionaries(st.text("ab_.-9", min_size=1, max_size=5), _parameters, min_size=1, max_size=3), st.integers(0, 99)
)
def test_spaces_round_trip(parameters, seed):
    listed = [{"name": name, **each} for name, each in parameters.items()]
    try:
        search = searched({**ALGORITHM, "inputs": [], "outputs": []}, search_params=listed)
    except (BadSpec, BadShape):  # names that are one without dots
        reject()
    space = Space.from_json(search.spec.parameters, ())
    values = random_values(space, seed)

    assert {search.names[each.name] for each in space.parameters} == parameters.keys()
    arguments = framework_of(search, **values)["custom_arguments"]
    reached = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    assert reached.keys() == parameters.keys()
    for name, text in reached.items():
        given_ = parameters[name]
        if given_["param_type"] == "discrete":
            assert text in given_["discrete_values"]
        else:
            low, high = float(given_["lower_bound"]), float(given_["upper_bound"])
            slack = 1e-9 * max(1.0, abs(low), abs(high))
            assert low - slack <= float(text) <= high + slack


def test_trials_that_fail_by_their_own_fault_count_as_in_every_new_sweep():
    rule = searched().spec.on_failed_trials

    assert rule == FailedTrials(penalize=True, causes=OWN_FAULTS)
