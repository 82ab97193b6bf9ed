"""Search algorithms of ModelArts, the methods and options that they are, and templates of their configuration. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from app.domain.errors import NotFound
from app.domain.sweeps.spec import ANNEAL, GP, TPE

NUM_SAMPLES = "num_samples"
TYPE_EN, TYPE_ZH = "hyperparameter_search", "超参搜索"


class AlgorithmOption(NamedTuple):
    """A parameter of an algorithm that has an effect."""

    native: str
    read: Callable[[str], int | float]
    rule: str


_WHOLE, _NUMBER = "a whole number, as text", "a number, as text"
_SAMPLES = AlgorithmOption("max_trials", int, _WHOLE)
_STARTUP = AlgorithmOption("startup_trials", int, _WHOLE)


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """``defaults``: the values of its parameters unless a job names others, those without an effect among them."""

    method: str
    description: str
    defaults: Mapping[str, str]
    types: Mapping[str, str]
    options: Mapping[str, AlgorithmOption]


ALGORITHMS: Mapping[str, Algorithm] = {
    "bayes_opt_search": Algorithm(
        method=GP,
        description="Bayesian optimization by a Gaussian process",
        defaults={NUM_SAMPLES: "20", "kind": "ucb", "kappa": "2.5", "xi": "0.0"},
        types={NUM_SAMPLES: "Integer", "kind": "String", "kappa": "Float", "xi": "Float"},
        options={NUM_SAMPLES: _SAMPLES},
    ),
    "tpe_search": Algorithm(
        method=TPE,
        description="Tree-structured Parzen estimators",
        defaults={NUM_SAMPLES: "20", "n_initial_points": "10", "gamma": "0.25"},
        types={NUM_SAMPLES: "Integer", "n_initial_points": "Integer", "gamma": "Float"},
        options={NUM_SAMPLES: _SAMPLES, "n_initial_points": _STARTUP},
    ),
    "anneal_search": Algorithm(
        method=ANNEAL,
        description="Simulated annealing around good trials",
        defaults={NUM_SAMPLES: "20", "avg_best_idx": "2.0", "shrink_coef": "0.1"},
        types={NUM_SAMPLES: "Integer", "avg_best_idx": "Float", "shrink_coef": "Float"},
        options={
            NUM_SAMPLES: _SAMPLES,
            "avg_best_idx": AlgorithmOption("avg_best_idx", float, _NUMBER),
            "shrink_coef": AlgorithmOption("shrink_coef", float, _NUMBER),
        },
    ),
}


def algorithm_list() -> dict[str, Any]:
    """The answer to the request for all algorithms."""
    listed = [
        {"name": name, "params": _params(algorithm), "description": algorithm.description}
        for name, algorithm in ALGORITHMS.items()
    ]
    return {"search_algo_count": len(listed), "search_algo_list": listed}


def template_list() -> dict[str, Any]:
    return {
        "yaml_templates": [
            {"algorithm_type_en": TYPE_EN, "algorithm_type_zh": TYPE_ZH, "algorithm_names": list(ALGORITHMS)}
        ]
    }


def template(kind: str, name: str) -> dict[str, str]:
    """`policies` with this algorithm, as YAML. Raises NotFound."""
    if kind not in (TYPE_EN, TYPE_ZH) or name not in ALGORITHMS:
        raise NotFound(f"there is no template {kind[:64]}/{name[:64]}; known: {TYPE_EN}/{{{','.join(ALGORITHMS)}}}")
    search = {
        "skip_search_params": "",
        "reward_attrs": [{"name": "accuracy", "mode": "max", "regex": r"accuracy=([\d.]+)"}],
        "search_params": [
            {"name": "lr", "param_type": "continuous", "lower_bound": "0.0001", "upper_bound": "0.01"},
            {"name": "batch_size", "param_type": "discrete", "discrete_values": ["16", "32", "64"]},
        ],
        "algo_configs": [{"name": name, "params": _params(ALGORITHMS[name])}],
    }
    return {"file_name": f"{name}.yaml", "content": yaml.safe_dump({"auto_search": search}, sort_keys=False)}


def _params(algorithm: Algorithm) -> list[dict[str, str]]:
    return [{"key": key, "value": value, "type": algorithm.types[key]} for key, value in algorithm.defaults.items()]
