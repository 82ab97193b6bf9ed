"""A job as one run of Weights & Biases, by W&B's own client, which connects by a program of its own (wandb-core).

A row's own step is the arrival number of its last point, so that the end of the run's history, which the client reads
when it resumes a run, says how far the run has got. The training's step is the value `step`, the axis of all charts.
"""

import base64
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import wandb

from workers.fetching.uris import shown
from workers.tracking.failures import PASSING, NotDelivered
from workers.tracking.wandb_rows import STEP, rows

# The client keeps in memory what it could not send yet. After so many points it must have sent all. They also fit into
# one of its requests, of at most 10 MB: the first of several names the last row, which the server does not have yet.
MOST_UNCONFIRMED = 10_000
MESSAGE_CHARACTERS = 300  # of what the client says
CONFIRM_SECONDS, ASK_AGAIN_SECONDS = 2.0, 0.25  # a server may show the last points a moment later
_STATUS = re.compile(r"\b(?:returned error|HTTP) (4[0-9][0-9])\b")  # of an answer, as the client says it
_ENDED = {"COMPLETED": 0, "FAILED": 1, "CANCELLED": 1, "PREEMPTED": 1}  # exit codes, by which W&B shows a run's state
_OUTCOMES = {"completed": 0, "failed": 1, "cancelled": 1}
_LATER = 1  # with the mark of a preemption: another attempt may continue the run


@dataclass(frozen=True, kw_only=True)
class WandbFacts:
    """What is known of a job when its attempt begins; ``entity`` empty: that of the key's owner."""

    job_id: str
    name: str
    project: str
    entity: str
    config: Mapping[str, Any]
    tags: Sequence[str]
    group: str
    job_type: str


class LiveWandbRun:
    """``url`` is the server's address, ``seconds`` how long the client may take to open or to finish a run."""

    def __init__(
        self, url: str, key: str, seconds: float, facts: WandbFacts, *, most_unconfirmed: int = MOST_UNCONFIRMED
    ) -> None:
        # The login that the client sends, which a server may echo, with or without its padding; then the key itself.
        self.secrets = (base64.b64encode(f"api:{key}".encode()).decode().rstrip("="), key)
        self._url, self._key, self._seconds, self._facts = url, key, seconds, facts
        self._most_unconfirmed = most_unconfirmed
        self._run: Any = None
        self._given = 0  # arrival number of the last point that the client has
        self._confirmed = 0  # of the last one that the server has
        self._unconfirmed = 0  # points
        self._exit_code: int | None = None  # with which the run has ended

    def open(self) -> int:
        """As of TrackedRun."""
        with _failures(self.secrets):
            self._run = wandb.init(
                id=self._facts.job_id,
                resume="allow",
                name=self._facts.name,
                project=self._facts.project,
                entity=self._facts.entity or None,
                config=dict(self._facts.config),
                allow_val_change=True,
                tags=list(self._facts.tags),
                group=self._facts.group or None,
                job_type=self._facts.job_type,
                settings=self._settings(),
            )
            self._run.define_metric("*", step_metric=STEP)
        self._exit_code, self._unconfirmed = None, 0
        self._given = self._confirmed = max(0, int(self._run.starting_step) - 1)
        return self._given

    def act(self, request: dict[str, Any]) -> int:
        """As of TrackedRun."""
        if "points" in request:
            self._send(request["points"], int(request["seq"]))
        elif "outcome" in request:
            outcome = str(request["outcome"])
            self._finish(_OUTCOMES.get(outcome, _LATER), is_over=outcome in _OUTCOMES)
        else:
            self._end(str(request["state"]))
        return self._confirmed

    def _send(self, points: Sequence[list[Any]], seq: int) -> None:
        if self._unconfirmed + len(points) > self._most_unconfirmed:
            self._finish(_LATER, is_over=False)
        if self._run is None:
            self.open()
        with _failures(self.secrets):
            for number, row in rows(points):
                self._run.log(row, step=number)
        self._given, self._unconfirmed = seq, self._unconfirmed + len(points)

    def _end(self, state: str) -> None:
        """Write the job's state after the attempt, where the run's end did not foresee it."""
        is_over = state in _ENDED
        code = _ENDED.get(state, _LATER)
        if self._run is None and is_over and code != self._exit_code:
            self.open()
        if self._run is not None:  # also where points came late, or the client had to be started again
            self._finish(code, is_over=is_over)

    def _finish(self, code: int, *, is_over: bool) -> None:
        """End the run and have everything sent. The client says nothing of points that the server has refused, so that
        the server is asked for the last one.
        """
        run, self._run = self._run, None
        with _failures(self.secrets):
            if not is_over:
                run.mark_preempting()
            run.finish(exit_code=code)
            has_all = not self._unconfirmed or self._has_all(run)
        if not has_all:
            raise NotDelivered("the server does not have all points that its client has sent")
        self._exit_code, self._unconfirmed, self._confirmed = code, 0, self._given

    def _has_all(self, run: Any) -> bool:  # noqa: ANN401 – the client has no types
        deadline = time.monotonic() + CONFIRM_SECONDS
        while self._last_step(run) < self._given:
            if time.monotonic() >= deadline:
                return False
            time.sleep(ASK_AGAIN_SECONDS)
        return True

    def _last_step(self, run: Any) -> int:  # noqa: ANN401 – the client has no types
        overrides = {"base_url": self._url, "entity": run.entity}
        api: Any = wandb.Api(overrides=overrides, timeout=max(1, round(self._seconds)), api_key=self._key)
        return int(api.run(f"{run.entity}/{run.project}/{run.id}").summary.get("_step", -1))

    def _settings(self) -> "wandb.Settings":
        """Nothing is sent but what ``open`` and ``act`` say: no files, no facts of the machine, no code, no output."""
        return wandb.Settings(
            base_url=self._url,
            api_key=self._key,
            console="off",
            disable_code=True,
            disable_git=True,
            disable_job_creation=True,
            finish_timeout=self._seconds,
            finish_timeout_raises=True,
            ignore_globs=("*",),
            init_timeout=self._seconds,
            program="",
            save_code=False,
            silent=True,
            x_disable_machine_info=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_save_requirements=False,
            x_skip_transaction_log=True,
        )


def described(first: Mapping[str, Any]) -> LiveWandbRun:
    """The run of a first request."""
    service = first["service"]
    return LiveWandbRun(service["url"], service["token"], float(service["round_seconds"]), WandbFacts(**first["facts"]))


@contextmanager
def _failures(secrets: tuple[str, ...]) -> Iterator[None]:
    """Raises NotDelivered for what the client raises."""
    try:
        yield
    except TimeoutError as error:
        raise NotDelivered("it does not answer in time") from error
    # A ValueError is that of its settings, such as an address that it does not take.
    except (wandb.errors.AuthenticationError, wandb.errors.UsageError, ValueError) as error:
        raise NotDelivered(f"W&B's client: {_short(error, secrets)}", refused=True) from error
    except wandb.Error as error:
        status = _STATUS.search(str(error))
        is_refused = status is not None and int(status[1]) not in PASSING
        raise NotDelivered(f"W&B's client: {_short(error, secrets)}", refused=is_refused) from error


def _short(error: Exception, secrets: tuple[str, ...]) -> str:
    # Secrets go first: a part of one that a cut leaves is not found any more.
    return " ".join(shown(str(error), secrets).split())[:MESSAGE_CHARACTERS]
