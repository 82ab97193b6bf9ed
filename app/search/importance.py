"""How much each parameter matters, by Optuna's PED-ANOVA: whether the best trials have other values of it than all.

PED-ANOVA: Watanabe, Bansal and Hutter, 2023, https://arxiv.org/abs/2304.10255; of parameters that are not always
active: https://arxiv.org/abs/2601.20800.
"""

from collections.abc import Mapping
from typing import Any

from optuna.importance import PedAnovaImportanceEvaluator
from optuna.samplers import RandomSampler

from app.search.question import Question, question_of
from app.search.studies import study_of, trials_of


def importance(raw: Mapping[str, Any]) -> dict[str, float]:
    """Shares of 1 by parameter, for those that vary in completed trials; all 0 where no trial is better than another.

    Of several objectives: how much it matters for the way to the Pareto front.
    """
    question = _question_of(raw)
    trials = trials_of(question)
    names = sorted({name for trial in trials for name in trial.params})
    evaluator = PedAnovaImportanceEvaluator(target_quantile=raw["share_of_best"])
    found = evaluator.evaluate(study_of(question, trials, RandomSampler()), names) if names else {}
    total = sum(found.values())
    return {name: float(found[name] / total) if total > 0 else 0.0 for name in names}


def _question_of(raw: Mapping[str, Any]) -> Question:
    """Only completed trials count; nothing is drawn, so it has no seed of its own."""
    completed = [each for each in raw["observations"] if each["state"] == "completed"]
    without_draws = {"method": {"name": "importance", "seed": 0}, "place": 0, "seed": 0, "startup_trials": 0}
    return question_of({**raw, **without_draws, "observations": completed})
