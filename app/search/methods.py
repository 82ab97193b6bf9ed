"""The table of methods. Each is loaded when it is first asked: scipy and torch take memory that TPE needs not."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from app.search.question import FoundValues, Question

METHODS = {
    "tpe": "app.search.tpe",
    "gp": "app.search.gp",
    "cmaes": "app.search.evolution",
    "nsga2": "app.search.nsga2",
    "sobol": "app.search.sobol",
    "bohb": "app.search.bohb",
}
IMPORTANCE = "importance"  # a kind of question


def answer(question: Question) -> FoundValues:
    """A pure function of the question. Raises BadSpec, and ModuleNotFoundError where a library is not installed."""
    if question.name not in METHODS:
        raise ValueError(f"there is no method {question.name}; known: {', '.join(METHODS)}")
    suggest: Callable[[Question], FoundValues] = import_module(METHODS[question.name]).suggest
    return suggest(question)


def importance(raw: Mapping[str, Any]) -> dict[str, float]:
    """The share of each parameter in what makes trials good, for a question of that kind."""
    measure: Callable[[Mapping[str, Any]], dict[str, float]] = import_module("app.search.importance").importance
    return measure(raw)
