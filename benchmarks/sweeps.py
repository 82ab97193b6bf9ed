"""Sweeps: from a trial's end to the next trial, from a report to its decision, what early stopping and TPE are worth,
and many short trials (B12).

    python -m benchmarks.sweeps [--observed 100,1000] [--rounds 30] [--together 1] [--databases sqlite,postgresql]
        [--trials 10000]

The loop of a coordinator takes a sweep further in this process, with the process of the method as in the product, on a
database with as many trials that have ended as ``--observed`` says. A round: a job ends, and the time runs until the
next trial and its job are stored. With ``--together`` as many jobs end, and the time is that until as many trials are
stored, for which there is no goal. A decision is that about a report at a rung, by ``asha``, with as many reports of
others there; the time is that of the step, before which the loop waits up to half a second. Beside them stand SQL
statements and processor time for a trial, that of the method's process and of the database included, which hardly
depend on other load of the machine. Nothing trains: the losses by which the worth is measured are those of a made-up
bowl, whose values fall with the steps. Then a real coordinator runs `--trials` short trials
(`benchmarks/sweep_trials.py`; 0: none). One JSON line on standard output, a table on standard error.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from app.database.engine import Database, make_engine
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.draws import random_values, seed_of
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.rungs import RungReport, judge, rungs_of
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import SweepSpec
from app.models import Sweep, Trial, TrialReport
from app.models.base import utc_now
from app.services.operations.bootstrap import prepare
from app.services.sweeps.search.suggestions import Suggestions
from benchmarks import servers, sweep_trials
from benchmarks.machine import description
from benchmarks.processor_time import seconds_by_child
from config.settings import load_settings
from tasks.background.sweeping import REPORTS_SECONDS
from tests.builders.factories import make_node
from tests.builders.statements import statements
from tests.builders.sweep_runs import SweepRun
from tests.systems.apps import SECRET_KEY, Api

METHODS = ("random", "tpe")
END_TO_NEXT_SECONDS = {"random": 0.1, "tpe": 0.5}  # goals, p95 with 1,000 trials
DECISION_SECONDS = 1.0  # p95, of which the loop waits up to REPORTS_SECONDS
STEPS_SHARE, GAP_SHARE = 0.4, 0.7
PARAMETERS: dict[str, Any] = {
    "learning_rate": {"type": "double", "min": 1e-5, "max": 1e-1, "scale": "log"},
    "weight_decay": {"type": "double", "min": 0.0, "max": 0.3},
    "adam_beta1": {"type": "double", "min": 0.8, "max": 0.95},
    "max_grad_norm": {"type": "double", "min": 0.1, "max": 2.0},
    "adam_beta2": {"type": "categorical", "values": [0.95, 0.98, 0.99, 0.999]},
    "lr_scheduler_type": {"type": "categorical", "values": ["linear", "cosine", "constant"]},
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observed", default="100,1000")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--together", type=int, default=1, help="trials that run, and end at once")
    parser.add_argument("--databases", default="sqlite,postgresql")
    parser.add_argument("--trials", type=int, default=10_000, help="short ones, on the first of the databases")
    given = parser.parse_args(arguments)
    kinds = given.databases.split(",")
    observed = [int(each) for each in given.observed.split(",")]
    nexts = [row for kind in kinds for row in ends_to_nexts(kind, observed, given.rounds, given.together)]
    decisions = [row for kind in kinds for row in reports_to_decisions(kind, observed, given.rounds)]
    report = {
        "benchmark": "sweeps",
        "rounds": given.rounds,
        "together": given.together,
        "end_to_next": nexts,
        "report_to_decision": decisions,
        "worth": {"asha_steps": asha_steps(27), "tpe_gap": tpe_gap(trials=60, parallel=8, seeds=range(10))},
        "machine": description(),
    }
    if given.trials:
        of_trials = ["--trials", str(given.trials), "--database", kinds[0]]
        report["short_trials"] = sweep_trials.reported(of_trials)
    print(table(report), file=sys.stderr)
    print(json.dumps(report))


def ends_to_nexts(kind: str, observed: Sequence[int], rounds: int, together: int) -> Iterator[dict[str, Any]]:
    with _served(kind, devices=2 * together) as api:
        for method in METHODS:
            for number in observed:
                found = _end_to_next(api, method, number, rounds, together)
                yield {"database": kind, "method": method, "observed": number, **found}


def reports_to_decisions(kind: str, observed: Sequence[int], rounds: int) -> Iterator[dict[str, Any]]:
    with _served(kind, devices=rounds) as api:
        for number in observed:
            yield {"database": kind, "observed": number, **_report_to_decision(api, number, rounds)}


@contextmanager
def _served(kind: str, *, devices: int) -> Iterator[Api]:
    """The API on a new database with a node of so many devices."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainyard-sweeps-")))
        (url,) = servers.databases(kind, folder, stack, ("trainyard",))
        data = {"TRAINYARD_DATA_DIR": str(folder / "data"), "TRAINYARD_SECURITY_SECRET_KEY": SECRET_KEY}
        prepare(load_settings({**data, "TRAINYARD_DATABASE_URL": url}))
        db = stack.enter_context(closing(_database(url)))
        with db.write() as session:
            make_node(session, "runs-more", devices=devices)
        yield Api(db, folder)


def _database(url: str) -> Database:
    return Database().bind(make_engine(url))


def _end_to_next(api: Api, method: str, observed: int, rounds: int, together: int) -> dict[str, float]:
    run = SweepRun(
        api,
        parameters=PARAMETERS,
        method={"name": method, "seed": 1},
        budget={"max_trials": 10_000, "parallel_trials": together},
    )
    _fill(run, observed)
    found, spent, count = [], 0.0, rounds * together
    with closing(run), ExitStack() as counting:
        _step(run)
        sent, asked = counting.enter_context(statements(run.db)), 0
        for _ in range(rounds):
            numbers = [trial.number for trial in run.trials() if trial.state == "RUNNING"]
            for number in numbers:
                run.train(number, to=1)
                run.end(number)
            others = _seconds_of_children()  # outside of the own time: it reads all of /proc
            asked -= len(sent)
            own, begun = time.process_time(), time.perf_counter()
            _step(run)
            found.append(time.perf_counter() - begun)
            spent += time.process_time() - own
            asked += len(sent)
            spent += _seconds_of_children() - others
            assert run.sweep().next_number == numbers[-1] + 1 + together
        _end_sweep(run)
    return {**_spread(found), "cpu": spent / count, "statements": asked / count}


def _report_to_decision(api: Api, observed: int, rounds: int) -> dict[str, float]:
    """Each of so many running trials reports at the first rung, where as many others as ``observed`` have."""
    run = SweepRun(
        api,
        parameters=PARAMETERS,
        method={"name": "random", "seed": 1},
        early_stopping={"name": "asha", "min": 1, "max": 27},
        budget={"max_trials": 10_000, "parallel_trials": rounds},
    )
    _fill(run, observed)
    with run.db.write() as session:
        rows = [{**_REPORTED, "sweep_id": run.id, "number": i, "seq": i + 1, "value": i / 7} for i in range(observed)]
        session.execute(insert(TrialReport), rows)
    found, spent = [], 0.0
    with closing(run):
        _step(run)
        for trial in run.trials()[observed:]:
            run.train(trial.number, to=1)
            own, begun = time.process_time(), time.perf_counter()
            run.step()
            found.append(time.perf_counter() - begun)
            spent += time.process_time() - own
        assert len(run.reports()) == observed + len(found)
        assert len(found) == rounds
        _end_sweep(run)
    return {**_spread(found), "cpu": spent / rounds}


_REPORTED: dict[str, Any] = {"rung": 1, "continues": True, "rank": 1, "compared": 1, "decided_seq": 1, "at": utc_now()}


def _step(run: SweepRun) -> None:
    while run.step():
        pass


def _end_sweep(run: SweepRun) -> None:
    """Its devices are for the next one."""
    run.api.data(run.api.post(f"/v1/sweeps/{run.id}/cancel", {}))
    for trial in run.trials():
        if trial.state == "RUNNING":
            run.end(trial.number, JobState.CANCELLED)
    run.step()


def _seconds_of_children() -> float:
    """The processor time of all that this process has started."""
    return sum(seconds_by_child(os.getpid()).values())


def _fill(run: SweepRun, number: int) -> None:
    """Trials that have ended, as many as these, without jobs."""
    space = Space.from_json(PARAMETERS)
    rows = []
    for i in range(number):
        values = random_values(space, seed_of(1, i))
        rows.append(
            {
                "sweep_id": run.id,
                "number": i,
                "source": "method",
                "values": values,
                "seed": 0,
                "seen_seq": i,
                "state": "COMPLETED",
                "objectives": [loss(values)],
                "observed_seq": i + 1,
                "finished_at": utc_now(),
            }
        )
    with run.db.write() as session:
        session.execute(insert(Trial), rows)
        sweep = session.get_one(Sweep, run.id)
        sweep.next_number = sweep.seq = number


def loss(values: Mapping[str, Any], step: int = 27) -> float:
    """A bowl around a learning rate of 1e-3, with smaller bowls for the others; it falls with the steps."""
    rate = (math.log10(values["learning_rate"]) + 3) ** 2
    others = (values["weight_decay"] - 0.1) ** 2 * 10 + (values["max_grad_norm"] - 1) ** 2
    kind = {"linear": 0.1, "cosine": 0.0, "constant": 0.3}[values["lr_scheduler_type"]]
    return float(rate + others + kind + abs(values["adam_beta2"] - 0.99) + 3.0 / step)


def asha_steps(trials: int) -> dict[str, float]:
    """27 trials of 27 steps by ASHA with rungs 1, 3, 9, 27: the share of steps, and by how much its best is worse."""
    spec = SweepSpec.from_json({"early_stopping": {"name": "asha", "min": 1, "max": 27}})
    space, reports, used, best = Space.from_json(PARAMETERS), list[RungReport](), 0, math.inf
    curves = [random_values(space, seed_of(3, number)) for number in range(trials)]
    for number, values in enumerate(curves):
        reached = 0
        for rung in rungs_of(spec.early_stopping):
            mine = RungReport(number, rung, loss(values, rung), len(reports) + 1)
            verdict = judge(spec.early_stopping, mine, reports)
            reports.append(mine)
            reached = rung
            if not verdict.continues:
                break
        else:
            best = min(best, loss(values))
        used += reached
    full = min(map(loss, curves))
    return {"share": used / (trials * 27), "worse": best / full - 1}


def tpe_gap(*, trials: int, parallel: int, seeds: Sequence[int]) -> float:
    """TPE's distance to the optimum, divided by random's: medians over the seeds."""
    gaps: dict[str, list[float]] = {method: [] for method in METHODS}
    with closing(Suggestions()) as suggestions:
        for method in METHODS:
            for seed in seeds:
                gaps[method].append(_search(suggestions, method, seed, trials, parallel) - 3.0 / 27)
    return statistics.median(gaps["tpe"]) / statistics.median(gaps["random"])


def _search(suggestions: Suggestions, method: str, seed: int, trials: int, parallel: int) -> float:
    """The lowest loss after so many trials, of which so many run at once."""
    spec = SweepSpec.from_json({"method": {"name": method, "seed": seed}, "objective": {"metric": "eval_loss"}})
    space = Space.from_json(PARAMETERS)
    tried: list[dict[str, Any]] = []
    for number in range(trials):
        known = [
            Observation(
                number=i,
                values=values,
                state="completed" if i < number - parallel + 1 else "running",
                objectives=(loss(values),) if i < number - parallel + 1 else (),
            )
            for i, values in enumerate(tried)
        ]
        found = suggestions.suggest(spec, space, number=number, observations=known).values
        assert found is not None
        tried.append(found)
    return min(map(loss, tried))


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"p50": statistics.median(ordered), "p95": ordered[min(len(ordered) - 1, round(len(ordered) * 0.95))]}


def _goal(together: int, row: Mapping[str, Any]) -> str:
    """It is one for a single trial that ends."""
    return f"≤ {END_TO_NEXT_SECONDS[row['method']]} s" if together == 1 else "–"


def table(report: Mapping[str, Any]) -> str:
    heads = ("database", "method", "observed", "p50", "p95", "goal (1,000)", "processor time", "statements")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [
        f"| {row['database']} | {row['method']} | {row['observed']} | {row['p50']:.3f} s | {row['p95']:.3f} s "
        f"| {_goal(report['together'], row)} | {row['cpu']:.3f} s | {row['statements']:.1f} |"
        for row in report["end_to_next"]
    ]
    lines += ["", "| database | reports at the rung | report → decision p50 | p95 | goal | processor time |"]
    lines += ["|---|---|---|---|---|---|"]
    lines += [
        f"| {row['database']} | {row['observed']} | {row['p50']:.3f} s | {row['p95']:.3f} s "
        f"| ≤ {DECISION_SECONDS - REPORTS_SECONDS} s | {row['cpu']:.3f} s |"
        for row in report["report_to_decision"]
    ]
    worth = report["worth"]
    asha = worth["asha_steps"]
    lines += [
        "",
        f"ASHA: {asha['share']:.2f} of the steps (goal ≤ {STEPS_SHARE}), best {asha['worse']:.1%} worse (goal ≤ 2 %)",
        f"TPE: {worth['tpe_gap']:.2f} of random's gap to the optimum (goal ≤ {GAP_SHARE})",
    ]
    if "short_trials" in report:
        lines.append(sweep_trials.table(report["short_trials"]))
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
