"""The document of a sweep as frozen sections, with the default of every field."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

from app.domain.spec.metric_goals import Goal
from app.domain.sweeps import benchmarks

MAXIMIZE: Goal = "maximize"
NONE, MEDIAN, ASHA, HYPERBAND, PATIENCE = "none", "median", "asha", "hyperband", "patience"
EARLY_STOPPING = (NONE, MEDIAN, ASHA, HYPERBAND, PATIENCE)
GRID, RANDOM, SOBOL, TPE, GP, CMAES, ANNEAL, NSGA2, PBT, BOHB = (
    *("grid", "random", "sobol", "tpe", "gp", "cmaes", "anneal", "nsga2", "pbt", "bohb"),
)
METHODS = (GRID, RANDOM, SOBOL, TPE, GP, CMAES, ANNEAL, NSGA2, PBT, BOHB)
TOKENS = "tokens"  # a unit of rungs, and the metric that says how many a step has come to
UNITS = ("steps", "epochs", TOKENS)  # of rungs
STOP, PAUSE = "stop", "pause"  # EarlyStopping.losers
# Limits of the document; (lowest, highest) of the options of methods.
MAX_TRIALS, MAX_PARALLEL, MAX_OBJECTIVES, MAX_METRIC = 100_000, 1_000, 4, 128
MAX_SEED = 2**31 - 1
STARTUP_TRIALS, SIGMA0, RESTARTS, POPULATION = (1, MAX_TRIALS), (1e-6, 10.0), (0, 100), (2, 1_000)
AVG_BEST_IDX, SHRINK_COEF = (1.0, 1_000.0), (0.0, 100.0)
FREE = "free"  # Budget.parallel_trials
TRANSFER = "transfer"  # WarmStart.kind


@dataclass(frozen=True, kw_only=True)
class SweepSection:
    """A JSON object of the document. Every field is written back, so that a stored sweep stays as it is when a
    default changes.
    """

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read an object that passed the schema, or was stored; null stands for the default."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in raw.items() if name in known and value is not None})

    def to_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, kw_only=True)
class Objective(SweepSection):
    """``select``: best, last, or ``mean:N`` of the last N. ``goal`` is None for an unknown metric without one."""

    metric: str
    goal: Goal | None = None
    select: str = "best"

    @property
    def sign(self) -> float:
        """What a value is multiplied with, so that smaller is better."""
        return -1.0 if self.goal == MAXIMIZE else 1.0

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        return super().from_json({**raw, "goal": raw.get("goal") or benchmarks.goal(raw["metric"])})


@dataclass(frozen=True, kw_only=True)
class Constraint(SweepSection):
    """Of the result; one that breaks it is infeasible."""

    metric: str
    at_most: float | None = None
    at_least: float | None = None
    select: str = "last"

    def violation(self, value: float) -> float:
        """By how much the value breaks it; 0 or less if it does not."""
        over = -math.inf if self.at_most is None else value - self.at_most
        under = -math.inf if self.at_least is None else self.at_least - value
        return max(over, under)


@dataclass(frozen=True, kw_only=True)
class Method(SweepSection):
    name: str = TPE
    seed: int = 0
    order: Literal["natural", "shuffled"] = "shuffled"
    startup_trials: int = 10
    sigma0: float | None = None
    restarts: int = 0
    population: int = 50
    avg_best_idx: float = 2.0
    shrink_coef: float = 0.1
    interval: int | None = None  # pbt: optimizer steps between halts
    explore: Literal["perturb", "resample"] = "perturb"


@dataclass(frozen=True, kw_only=True)
class EarlyStopping(SweepSection):
    """Rungs are ``min × reductionᵏ`` up to ``max``, for patience every ``min``.

    ``losers``: stop – trials train on while they are compared, and losers are cancelled; pause – each trial halts at
    its rungs, exactly, and only winners are resumed.
    """

    name: str = NONE
    unit: Literal["steps", "epochs", "tokens"] = "steps"
    min: int = 0
    max: int = 0
    reduction: int = 3
    patience: int = 3
    startup_trials: int = 5
    losers: Literal["stop", "pause"] = "stop"


@dataclass(frozen=True, kw_only=True)
class Budget(SweepSection):
    """Whatever comes first. ``running``: what becomes of trials that run then."""

    max_trials: int | None = None
    parallel_trials: int | Literal["free"] = 1
    max_device_hours: float | None = None
    max_seconds: float | None = None
    target: float | None = None
    patience: int | None = None
    running: Literal["finish", "cancel"] = "finish"


@dataclass(frozen=True, kw_only=True)
class FailedTrials(SweepSection):
    """``max_failed``: a number or, below 1, a share. ``penalize``: trials that failed by one of ``causes`` count as
    the worst value seen; None, of sweeps that were stored before there were causes: by any.
    """

    max_failed: int | float | None = None
    penalize: bool = False
    causes: tuple[str, ...] | None = None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        found = super().from_json(raw)
        return replace(found, causes=None if found.causes is None else tuple(found.causes))

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "causes": None if self.causes is None else list(self.causes)}

    def penalizes(self, cause: str) -> bool:
        return self.penalize and (self.causes is None or cause in self.causes)

    def limit(self, trials: int) -> int:
        """How many of so many trials may fail; the default is a third, at least 3."""
        if self.max_failed is None:
            return max(3, trials // 3)
        return int(self.max_failed * trials) if 0 < self.max_failed < 1 else int(self.max_failed)


@dataclass(frozen=True, kw_only=True)
class WarmStart(SweepSection):
    """``sweeps``: ids of earlier ones. ``kind`` results: they count for the method; transfer: only their best values
    are tried first. ``count``: an earlier result may be the best of this sweep.
    """

    sweeps: tuple[str, ...] = ()
    kind: Literal["results", "transfer"] = "results"
    count: bool = False

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        return super().from_json({**raw, "sweeps": tuple(raw.get("sweeps") or ())})

    def to_json(self) -> dict[str, Any]:
        return {"sweeps": list(self.sweeps), "kind": self.kind, "count": self.count}


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """``job`` is the native document without what varies; ``parameters``, ``require`` and ``enqueue`` are raw."""

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may contain secrets
    parameters: Mapping[str, Any] = field(default_factory=dict)
    require: tuple[str, ...] = ()
    objectives: tuple[Objective, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    method: Method = Method()
    early_stopping: EarlyStopping = EarlyStopping()
    budget: Budget = Budget()
    on_failed_trials: FailedTrials = FailedTrials()
    warm_start: WarmStart = WarmStart()
    enqueue: tuple[Mapping[str, Any], ...] = ()
    keep_checkpoints_of_best: int = 3
    share_trunks: bool | None = None  # None: where the framework resumes exactly
    verify_trunks: int = 0  # so many forks are also trained from the start, and their weights compared
    deterministic: bool = False

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read a document that passed the schema, or was stored."""
        objective = raw.get("objective") or []
        listed = objective if isinstance(objective, list) else [objective]
        kept = (raw.get("keep") or {}).get("checkpoints_of_best")
        return cls(
            name=raw.get("name") or "",
            labels=raw.get("labels") or {},
            job=raw.get("job") or {},
            parameters=raw.get("parameters") or {},
            require=tuple(raw.get("require") or ()),
            objectives=tuple(map(Objective.from_json, listed)),
            constraints=tuple(map(Constraint.from_json, raw.get("constraints") or ())),
            method=Method.from_json(raw.get("method") or {}),
            early_stopping=EarlyStopping.from_json(raw.get("early_stopping") or {}),
            budget=Budget.from_json(raw.get("budget") or {}),
            on_failed_trials=FailedTrials.from_json(raw.get("on_failed_trials") or {}),
            warm_start=WarmStart.from_json(raw.get("warm_start") or {}),
            enqueue=tuple(raw.get("enqueue") or ()),
            keep_checkpoints_of_best=cls.keep_checkpoints_of_best if kept is None else kept,
            share_trunks=raw.get("share_trunks"),
            verify_trunks=raw.get("verify_trunks") or 0,
            deterministic=bool(raw.get("deterministic")),
        )

    def to_json(self) -> dict[str, Any]:
        """The document with every default filled in."""
        return {
            "name": self.name,
            "labels": dict(self.labels),
            "job": dict(self.job),
            "parameters": dict(self.parameters),
            "require": list(self.require),
            "objective": [each.to_json() for each in self.objectives],
            "constraints": [each.to_json() for each in self.constraints],
            "method": self.method.to_json(),
            "early_stopping": self.early_stopping.to_json(),
            "budget": self.budget.to_json(),
            "on_failed_trials": self.on_failed_trials.to_json(),
            "warm_start": self.warm_start.to_json(),
            "enqueue": [dict(values) for values in self.enqueue],
            "keep": {"checkpoints_of_best": self.keep_checkpoints_of_best},
            "share_trunks": self.share_trunks,
            "verify_trunks": self.verify_trunks,
            "deterministic": self.deterministic,
        }
