"""hyperParameterTuningConfig as the document of a sweep: what varies, how it reaches the program, what counts."""

import contextlib
import re
from typing import Any

import pytest
import re2
import yaml
from hypothesis import given, reject
from hypothesis import strategies as st

from app.compat.ome.manifests import JobSpecSchema
from app.compat.ome.runtimes import BUILT_IN
from app.compat.ome.searches import LEARNING_RATES, PARAMETERS, Search, search_of
from app.compat.ome.to_native import to_native
from app.domain.errors import BadSpec
from app.domain.sweeps.documents import trial_document
from app.domain.sweeps.draws import random_values
from app.domain.sweeps.observations import OWN_FAULTS
from app.domain.sweeps.rules import document as rules
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import FailedTrials
from app.http.request_body import validated
from tests.unit.compat.test_ome import LLAMA, TUNING
from tests.unit.domain.sweeps.drawn_spaces import PARAMETERS as DRAWN
from workers.rank.variable_expansion import expanded

# The documentation's section on tuning, word for word.
SECTION = yaml.safe_load("""
  method: "random"  # or "grid", "bayes"
  maxTrials: 20
  metric:
    name: "val_accuracy"
    goal: "maximize"  # or "minimize"
  parameters:
    learning_rate:
      type: "double"
      min: 0.0001
      max: 0.01
      scale: "log"
    dropout_rate:
      type: "double"
      values: [0.1, 0.2, 0.3, 0.4, 0.5]
    batch_size:
      type: "int"
      min: 8
      max: 64
      step: 8
""")
BUILT = {
    "runtimeRef": {"name": "pytorch-runtime"},
    "trainer": {},
    "modelConfig": {"inputModel": "tiny"},
    "datasets": {"storageUri": "/srv/data.jsonl"},
}


def searched(spec: dict[str, Any], config: dict[str, Any]) -> Search:
    found = validated(JobSpecSchema(), {**spec, "hyperParameterTuningConfig": config})
    runtime = BUILT_IN[found["runtimeRef"]["name"]]
    native = to_native("llama", found, runtime, {"team": "nlp"})
    return search_of(native.document, found["hyperParameterTuningConfig"])


def commanded(*words: str, **parameters: Any) -> Search:
    spec = {**LLAMA, "trainer": {"command": list(words)}}
    return searched(spec, {**TUNING, "parameters": parameters})


def words_of(search: Search, values: dict[str, Any]) -> list[str]:
    """The command of a trial, with its variables resolved as a rank does."""
    document = trial_document(search.spec.job, values, name="t", labels={})
    training = document["training_config"]
    return [expanded(word, training["environment"]) for word in training["framework"]["custom_command"]]


def test_first_example_of_the_documentation_is_a_random_search():
    search = searched(LLAMA, TUNING)

    spec, space = search.spec, rules.check(search.spec)
    shown = (spec.name, spec.labels, spec.method.name, spec.budget.max_trials)
    assert shown == ("llama", {"team": "nlp"}, "random", 10)
    assert (spec.objectives[0].metric, spec.objectives[0].goal) == ("accuracy", "maximize")
    assert [(each.name, each.type, each.low, each.high, each.values) for each in space.parameters] == [
        ("environment.batch_size", "int", None, None, (8, 16, 32)),
        ("environment.learning_rate", "double", 0.0001, 0.01, ()),
    ]
    assert search.names == {"environment.learning_rate": "learning_rate", "environment.batch_size": "batch_size"}
    assert search.warnings == []


def test_section_on_tuning_of_the_documentation_is_accepted_for_commands_and_built_in_trainers():
    of_command = searched(LLAMA, SECTION)
    known = {name: raw for name, raw in SECTION["parameters"].items() if name != "dropout_rate"}
    built_in = searched(BUILT, {**SECTION, "parameters": known})

    assert [each.size for each in rules.check(of_command.spec).parameters] == [8, 5, None]
    assert [each.name for each in rules.check(built_in.spec).parameters] == ["data_config.batch_size", "learning_rate"]
    assert built_in.spec.objectives[0].metric == "eval_mean_token_accuracy"
    assert built_in.spec.job["data_config"]["validation_split"] == 0.05
    assert [line.partition(":")[0] for line in built_in.warnings] == ["spec.hyperParameterTuningConfig.metric.name"] * 2


def test_built_in_trainer_without_parameters_searches_learning_rates():
    search = searched(BUILT, {"method": "bayes", "maxTrials": 50, "metric": {"name": "perplexity", "goal": "minimize"}})

    rules.check(search.spec)
    assert (search.spec.method.name, search.spec.budget.max_trials) == ("tpe", 50)
    assert search.spec.parameters == LEARNING_RATES
    assert search.spec.objectives[0].metric == "eval_loss"
    assert search.warnings[0].startswith(f"{PARAMETERS}: none is named: learning_rate varies")


def test_program_without_parameters_is_refused():
    with pytest.raises(BadSpec, match="name at least one parameter") as refused:
        searched(LLAMA, {**TUNING, "parameters": {}})

    assert refused.value.field == PARAMETERS


def test_values_reach_options_references_and_variables():
    rate, size = {"type": "double", "values": [0.5, 1e-05]}, {"type": "int", "values": [8]}
    search = commanded(
        *("python", "train.py", "--learning-rate", "0.1", "--batch_size=4", "--also", "-v", "x$(batch_size)"),
        "$$(batch_size)",
        learning_rate=rate,
        batch_size=size,
        also={"type": "bool"} | {"type": "categorical", "values": ["a"]},
    )

    values: dict[str, Any] = {"environment.learning_rate": 1e-05, "environment.batch_size": 8, "environment.also": "a"}
    document = trial_document(search.spec.job, values, name="t", labels={})
    assert words_of(search, values)[-1] == "$(batch_size)"
    assert words_of(search, values)[2:7] == ["--learning-rate=1e-05", "--batch_size=8", "--also=a", "-v", "x8"]
    assert document["training_config"]["environment"]["learning_rate"] == "1e-05"


def test_negative_numbers_after_an_option_are_its_value():
    search = commanded("python", "t.py", "--shift", "-0.5", "--x", "-1", shift={"type": "double", "min": -1, "max": 1})

    assert search.spec.job["training_config"]["framework"]["custom_command"] == [
        *("python", "t.py", "--shift=$(shift)", "--x", "-1")
    ]


@pytest.mark.parametrize("name", ["model.lr", "lr-decay", "RANK", "max_tokens", "2nd"])
def test_names_that_no_variable_may_have_reach_the_command(name):
    search = commanded("python", "t.py", f"--{name}", "1", f"a=$({name})", **{name: {"type": "int", "values": [3, 4]}})

    (parameter,) = rules.check(search.spec).parameters
    assert not parameter.name.startswith("environment.")
    assert search.names == {parameter.name: name}
    assert words_of(search, {parameter.name: 4}) == ["python", "t.py", f"--{name}=4", "a=4"]


def test_two_names_that_are_alike_are_refused():
    with pytest.raises(BadSpec, match="has the same name here as another"):
        commanded("t", **{"a.b": 1, "a/b": 2})


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("epoch 3 val/acc.1=0.93 loss=2", "0.93"),
        ("val/acc.1: 5e-3", "5e-3"),
        ('{"val/acc.1": -1.5}', "-1.5"),
        ("{'val/acc.1' : 7}", "7"),
        ("my_val/acc.1=1", None),
        ("val/acc.12=1", None),
        ("val/accX1=1", None),
    ],
)
def test_metric_of_a_program_is_read_from_its_lines(line, value):
    search = searched(LLAMA, {**TUNING, "metric": {"name": "val/acc.1", "goal": "maximize"}})

    found = re2.search(search.spec.job["training_config"]["framework"]["config"]["metric.val/acc.1"], line)
    assert (found[1] if found else None) == value


@pytest.mark.parametrize(
    ("native", "field"),
    [
        ("parameters.environment.learning_rate.min", "parameters.learning_rate.min"),
        ("parameters.environment.batch_size", "parameters.batch_size"),
        ("parameters", "parameters"),
        ("objective.metric", "metric.name"),
        ("objective.goal", "metric"),
        ("budget.max_trials", "maxTrials"),
        ("method.name", "method"),
        ("job.training_config.framework.config.metric.accuracy", "metric.name"),
    ],
)
def test_fields_in_errors_are_those_of_the_manifest(native, field):
    assert searched(LLAMA, TUNING).naming.field(native) == f"spec.hyperParameterTuningConfig.{field}"


def test_other_fields_of_trials_are_those_of_the_job():
    naming = searched(LLAMA, TUNING).naming

    assert naming.field("job.resource_config.gpu_count") == naming.field("resource_config.gpu_count")
    assert naming.text("breaks (a trial with environment.learning_rate=3)") == "breaks (a trial with learning_rate=3)"


_names = st.text("abcXYZ_019.-", min_size=1, max_size=6).filter(lambda name: re.fullmatch(r"[A-Za-z_].*", name))
_ome = DRAWN.filter(lambda raw: raw["type"] != "bool" and "step" not in raw)


@pytest.mark.long
@given(st.dictionaries(_names, _ome, min_size=1, max_size=4), st.integers(0, 2**32))
def test_spaces_round_trip(parameters, seed):
    try:
        search = commanded("t", *(f"--{name}" for name in parameters), **parameters)
    except BadSpec:  # names that are one without . and -
        reject()
    space = Space.from_json(search.spec.parameters, ())

    shown = {search.names[each.name]: each.to_json() for each in space.parameters}
    assert Space.from_json(shown_as_native(shown, search), ()) == space
    values = random_values(space, seed)
    named = {search.names[name]: value for name, value in values.items()}
    assert named.keys() == parameters.keys()
    for name, value in named.items():
        raw = parameters[name]
        assert value in raw["values"] if "values" in raw else raw["min"] <= value <= raw["max"]


def shown_as_native(shown: dict[str, Any], search: Search) -> dict[str, Any]:
    native = {name: each for each, name in search.names.items()}
    return {native[name]: raw for name, raw in shown.items()}


@pytest.mark.parametrize(
    "space",
    [{"min": -1e308, "max": 1e308, "step": 1.0}, {"min": 0, "max": 1, "step": 1e-320}, {"max": 1e300, "step": 1e-300}],
)
@pytest.mark.parametrize("method", ["grid", "random"])
def test_ranges_of_very_many_steps_are_refused_or_searched_but_no_error(space, method):
    config = {**TUNING, "method": method, "parameters": {"x": {"type": "double", "min": 0, **space}}}

    with contextlib.suppress(BadSpec):
        assert searched(LLAMA, config).spec.method.name == method


def test_a_parameter_of_a_command_may_be_written_as_its_option():
    search = commanded("python", "train.py", "--lr", "1", **{"--lr": {"type": "double", "values": [0.1, 0.2]}})

    assert search.spec.job["training_config"]["framework"]["custom_command"][-1].startswith("--lr=$(")


def test_trials_that_fail_by_their_own_fault_count_as_in_every_new_sweep():
    rule = searched(LLAMA, TUNING).spec.on_failed_trials

    assert rule == FailedTrials(penalize=True, causes=OWN_FAULTS)
