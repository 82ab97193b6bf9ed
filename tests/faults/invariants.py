"""What must be true after every fault, I1 to I12. Each one yields what contradicts it, in words; nothing when all is
well.

They are about a history whose jobs have all ended (I2 says so if one has not) and whose nodes had the time to clean up.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from app.domain.lifecycle.states import TERMINAL
from app.domain.units import WHOLE
from app.models import Attempt
from tests.faults.history import History, JobHistory
from tests.faults.witness import Stretch

Invariant = Callable[[History], Iterator[str]]
# Progress is reported once a second and written in batches: so much of it may be lost with a killed process.
UNREPORTED_SECONDS = 3.0
# Verbs of the API → what the audit trail calls them.
AUDITED = {
    "cancel": ("job.cancel", "job.status"),
    "pause": ("job.pause", "job.status"),
    "resume": ("job.resume",),
    "checkpoint": ("job.checkpoint",),
}


def what_was_accepted_is_there(history: History) -> Iterator[str]:
    """I1: every job that a client got 201 for."""
    for job_id in set(history.accepted) - history.jobs.keys():
        yield f"{job_id} was accepted and is not in the database"
    for path, status in history.server_errors:
        yield f"{path} was answered with {status}"


def every_job_ends_once(history: History) -> Iterator[str]:
    """I2: one terminal state, the last change of state, never left."""
    for one in history.jobs.values():
        states = [event.to_status for event in one.events if event.to_status is not None]
        ends = [state for state in states if state in TERMINAL]
        if one.job.status not in TERMINAL:
            yield f"{one.job.id} has not ended: {one.job.status} {one.job.pending_reason}"
        elif len(ends) != 1 or states[-1] != one.job.status:
            yield f"{one.job.id} is {one.job.status} and went {' '.join(map(str, states))}"


def nothing_trains_twice(history: History) -> Iterator[str]:
    """I3: no two attempts of a job at a time, no device given out beyond the whole, no two processes of one rank."""
    held: dict[tuple[str, int], list[tuple[int, int, str, int]]] = {}
    for one in history.jobs.values():
        numbers = {attempt.number: attempt for attempt in one.attempts}
        yield from _overlaps(_intervals(one.stretches), f"attempts of {one.job.id}")
        seen = Counter((stretch.attempt, stretch.rank) for stretch in one.stretches)
        for (attempt, rank), count in seen.items():
            if count > 1:
                yield f"{one.job.id}: rank {rank} of attempt {attempt} was {count} processes"
            if attempt not in numbers:
                yield f"{one.job.id}: attempt {attempt} trained and is not in the database"
        for first, last, name in _intervals(one.stretches):
            record = numbers.get(int(name))
            for device in _devices(record):
                share = record.device_share if record is not None else WHOLE
                held.setdefault(device, []).append((first, last, f"{one.job.id}/{name}", share))
    for device, intervals in held.items():
        yield from _given_twice(intervals, f"users of device {device}")


def tokens_rise_and_stale_writes_are_refused(history: History) -> Iterator[str]:
    """I4: each attempt has a higher token than all before, and nothing of an earlier one came after a later one's."""
    for one in history.jobs.values():
        for before, after in pairwise(one.attempts):
            if after.fence <= before.fence:
                yield f"{one.job.id}: attempt {after.number} has token {after.fence} after {before.fence}"
        for earlier, later in pairwise(one.metrics):
            if later.attempt < earlier.attempt:
                yield f"{one.job.id}: a point of attempt {later.attempt} arrived after one of {earlier.attempt}"
        attempt_of = {checkpoint.id: checkpoint.attempt for checkpoint in one.checkpoints}
        ended: set[int] = set()
        for event in one.events:
            if event.type == "attempt.ended":
                ended.add(event.data["attempt"])
            elif event.type == "checkpoint.saved" and attempt_of.get(event.data["checkpoint_id"]) in ended:
                yield f"{one.job.id}: a checkpoint was recorded by an attempt that had ended"


def attempts_start_from_the_last_checkpoint(history: History) -> Iterator[str]:
    """I5: the newest durable one before them, by the witness and by the record; or the one that a person chose."""
    for one in history.jobs.values():
        records = {attempt.number: attempt for attempt in one.attempts}
        for stretch in one.stretches:
            chosen = _chosen_step(one, stretch.attempt)
            saved = one.saved_before(stretch.attempt)
            expected = chosen if chosen is not None else (saved[-1].step if saved else 0)
            if stretch.start_step != expected:
                yield f"{one.job.id}: attempt {stretch.attempt} began at {stretch.start_step}, not {expected}"
            record = records.get(stretch.attempt)
            if record is not None and record.trained_at is not None and record.start_step != stretch.start_step:
                yield f"{one.job.id}: attempt {stretch.attempt} is recorded to begin at {record.start_step}"


def lost_steps_are_counted(history: History) -> Iterator[str]:
    """I6: as many as the witness saw after the checkpoint that was gone on from, but for those that died unreported."""
    for one in history.jobs.values():
        records = {attempt.number: attempt for attempt in one.attempts}
        for stretch, after in pairwise(one.leading):
            record = records.get(stretch.attempt)
            if record is None or record.lost_steps is None or _chosen_step(one, after.attempt) is not None:
                continue
            lost = max(0, stretch.last_step - after.start_step)
            known = stretch.steps_until(stretch.last_ns - int(UNREPORTED_SECONDS * 1e9))
            least = max(0, known - after.start_step)
            if not least <= record.lost_steps <= lost:
                yield f"{one.job.id}: attempt {stretch.attempt} lost {lost} steps, and {record.lost_steps} are recorded"


def nothing_said_is_lost(history: History) -> Iterator[str]:
    """I7: a metric point and a log line for every step up to the last checkpoint, each once, in order."""
    for one in history.jobs.values():
        if len({point.seq for point in one.metrics}) != len(one.metrics):
            yield f"{one.job.id}: two points have one arrival number"
        if not one.is_witnessed:
            continue
        durable = max((c.step for c in one.checkpoints), default=0)
        if one.job.status == "COMPLETED":
            durable = one.asked_steps
        losses = {point.step: point.value for point in one.metrics if point.name == "loss"}
        missing = [step for step in range(1, durable + 1) if losses.get(step) != 1.0 / step]
        if missing:
            yield f"{one.job.id}: no right metric for steps {missing[:5]}, and {durable} are safe"
        said = _steps_said(one)
        for attempt, steps in said.items():
            if steps != list(range(steps[0], steps[-1] + 1)):
                yield f"{one.job.id}: the log of attempt {attempt} jumps"
        unsaid = set(range(1, durable + 1)) - {step for steps in said.values() for step in steps}
        if unsaid:
            yield f"{one.job.id}: no log line for steps {sorted(unsaid)[:5]}, and {durable} are safe"


def devices_are_held_by_live_attempts(history: History) -> Iterator[str]:
    """I8: a reservation for each device of each live attempt, and none besides."""
    live = {(lease.job_id, lease.attempt) for lease in history.live_leases}
    for job_id in (job_id for job_id, count in Counter(job for job, _ in live).items() if count > 1):
        yield f"{job_id} has several live leases"
    reserved = Counter((row.job_id, row.attempt) for row in history.reservations)
    for job_id, attempt in reserved.keys() - live:
        yield f"{job_id} has devices for attempt {attempt}, which is over"
    for job_id, number in live:
        one = history.jobs.get(job_id)
        if one is None or one.job.status in TERMINAL:
            yield f"{job_id} has ended and holds a lease"
            continue
        record = next((attempt for attempt in one.attempts if attempt.number == number), None)
        if len(_devices(record)) != reserved[job_id, number]:
            yield f"{job_id}: attempt {number} has {reserved[job_id, number]} devices reserved"


def nothing_is_left(history: History) -> Iterator[str]:
    """I9: no process, no run directory, no mount, and in the storage no more checkpoints than are recorded."""
    yield from (f"still runs: {line}" for line in history.processes)
    yield from (f"still there: {path}" for path in history.run_directories)
    yield from (f"still mounted: {point}" for point in history.mounts)
    for job_id, names in history.stored.items():
        recorded = {c.id for c in history.jobs[job_id].checkpoints if c.deleted_at is None}
        yield from (f"{job_id}: {name} is stored but not recorded" for name in names if name not in recorded)


def checkpoints_verify(history: History) -> Iterator[str]:
    """I10: every one that is listed is whole, and holds what so many right steps make."""
    for one in history.jobs.values():
        for checkpoint in one.checkpoints:
            if checkpoint.deleted_at is None:
                folder = history.storage / "jobs" / one.job.id / "checkpoints" / checkpoint.id
                problems = checkpoint_problems(folder, is_witnessed=one.is_witnessed)
                yield from (f"{one.job.id}: {checkpoint.id}: {problem}" for problem in problems)
        if one.job.status == "COMPLETED" and one.is_witnessed:
            answer = history.storage / "jobs" / one.job.id / "artifacts" / "answer.json"
            if not answer.exists() or json.loads(answer.read_text())["digest"] != chain_of(one.asked_steps):
                yield f"{one.job.id}: its result is not what {one.asked_steps} right steps make"


def the_audit_trail_is_complete(history: History) -> Iterator[str]:
    """I11: a line for each change of state and each verb, and a history without gaps."""
    for one in history.jobs.values():
        if [event.seq for event in one.events] != list(range(1, len(one.events) + 1)):
            yield f"{one.job.id}: its history has gaps"
        changes = Counter((e.from_status, e.to_status) for e in one.events if e.type == "job.status")
        audited = Counter((a.data["from"], a.data["to"]) for a in one.audit if a.action == "job.status")
        if changes != audited:
            yield f"{one.job.id}: changed its state by {changes}, audited are {audited}"
    for job_id, verb in history.verbs:
        actions = {entry.action for entry in history.jobs[job_id].audit} if job_id in history.jobs else set()
        if not actions & set(AUDITED.get(verb, ())) and verb in AUDITED:
            yield f"{job_id}: {verb} was answered and is not in the audit trail"


def recoveries_are_recorded(history: History) -> Iterator[str]:
    """I12: how each attempt ended, what was done about it, and how long noticing and recovering took."""
    for one in history.jobs.values():
        for attempt in one.attempts:
            what = f"{one.job.id}: attempt {attempt.number}"
            if attempt.ended_at is None or attempt.lost_steps is None or attempt.end_step is None:
                yield f"{what} has no end"
            elif attempt.cause and attempt.policy is None and _was_recovered(one, attempt.number):
                yield f"{what} failed by {attempt.cause}, and no recovery is recorded"
            elif attempt.cause and attempt.started_at is not None and attempt.detect_seconds is None:
                yield f"{what} failed by {attempt.cause}, and the time to detect it is not recorded"
        for before, after in pairwise(one.attempts):
            recovered = before.cause and after.trained_at is not None and _was_recovered(one, before.number)
            if recovered and after.recover_seconds is None:
                yield f"{one.job.id}: the recovery time of attempt {after.number} is not recorded"


INVARIANTS: Mapping[str, Invariant] = {
    "I1": what_was_accepted_is_there,
    "I2": every_job_ends_once,
    "I3": nothing_trains_twice,
    "I4": tokens_rise_and_stale_writes_are_refused,
    "I5": attempts_start_from_the_last_checkpoint,
    "I6": lost_steps_are_counted,
    "I7": nothing_said_is_lost,
    "I8": devices_are_held_by_live_attempts,
    "I9": nothing_is_left,
    "I10": checkpoints_verify,
    "I11": the_audit_trail_is_complete,
    "I12": recoveries_are_recorded,
}


def violations(history: History) -> list[str]:
    """All of all of them, each with the name of its invariant."""
    return [f"{name}: {what}" for name, invariant in INVARIANTS.items() for what in invariant(history)]


def chain_of(steps: int) -> str:
    """What the witnessed script has made of so many steps."""
    digest = ""
    for step in range(1, steps + 1):
        digest = hashlib.sha256(f"{digest} {step}".encode()).hexdigest()
    return digest


def checkpoint_problems(folder: Path, *, is_witnessed: bool = True) -> Iterator[str]:
    """What is wrong with a stored checkpoint (of the witnessed script), judged without a line of ours."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        entries = {entry["path"]: entry for entry in manifest["files"]}
        state = json.loads((folder / "state.json").read_text()) if is_witnessed else None
    except (OSError, ValueError, KeyError) as error:
        yield f"not readable: {error}"
        return
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"manifest.json"}
    if found != entries.keys():
        yield f"holds {sorted(found)}, and its manifest lists {sorted(entries)}"
    for path in found & entries.keys():
        content = (folder / path).read_bytes()
        if (len(content), hashlib.sha256(content).hexdigest()) != (entries[path]["size"], entries[path]["sha256"]):
            yield f"{path} is not what its manifest says"
    if state is not None and (state["digest"] != chain_of(state["step"]) or state["step"] != manifest["step"]):
        yield f"its state is not that of step {manifest['step']}"


def _steps_said(one: JobHistory) -> dict[int, list[int]]:
    """Attempt → the steps that its log tells of."""
    said: dict[int, list[int]] = {}
    for attempt, line in one.logs:
        if line.startswith("step "):
            said.setdefault(attempt, []).append(int(line.split()[1]))
    return said


def _chosen_step(one: JobHistory, attempt: int) -> int | None:
    """The start step that a user's resume chose; None without a resume since the attempt before."""
    step = None
    for event in one.events:
        if event.type == "attempt.ended" and event.data.get("attempt", 0) < attempt:
            step = None
        elif event.reason == "resumed" and event.to_status == "QUEUED":
            step = event.data.get("step")
        elif event.type == "attempt.started" and event.data.get("attempt") == attempt:
            break
    return step


def _was_recovered(one: JobHistory, attempt: int) -> bool:
    """Whether the platform recovered the attempt: it did not end the job, nor did a person pause it."""
    ended = [i for i, e in enumerate(one.events) if e.type == "attempt.ended" and e.data["attempt"] == attempt]
    later = (event for i in ended for event in one.events[i + 1 :])
    # Restarted in place, a job stays in its state, and the next attempt is all there is to see.
    following = next((event for event in later if event.to_status or event.type == "attempt.started"), None)
    return following is not None and following.to_status not in (*TERMINAL, "PAUSED")


def _intervals(stretches: Sequence[Stretch]) -> list[tuple[int, int, str]]:
    """(first, last, attempt) over all ranks of each attempt."""
    spans: dict[int, tuple[int, int]] = {}
    for stretch in stretches:
        first, last = spans.get(stretch.attempt, (stretch.first_ns, stretch.last_ns))
        spans[stretch.attempt] = (min(first, stretch.first_ns), max(last, stretch.last_ns))
    return [(first, last, str(attempt)) for attempt, (first, last) in spans.items()]


def _overlaps(intervals: list[tuple[int, int, str]], what: str) -> Iterator[str]:
    ordered = sorted(intervals)
    for i, (_, last, name) in enumerate(ordered):
        for first, _, other in ordered[i + 1 :]:
            if first < last:
                yield f"{what} overlap by {(last - first) / 1e9:.3f} s: {name} and {other}"


def _given_twice(intervals: list[tuple[int, int, str, int]], what: str) -> Iterator[str]:
    """Those that had more than the whole together, at the moments at which one of them began."""
    for moment in sorted({first for first, *_ in intervals}):
        users = [(name, share) for first, last, name, share in intervals if first <= moment < last]
        if sum(share for _, share in users) > WHOLE:
            yield f"{what} had more than the whole: {', '.join(f'{share} % for {name}' for name, share in users)}"


def _devices(attempt: Attempt | None) -> list[tuple[str, int]]:
    if attempt is None:
        return []
    pairs = zip(attempt.node_names, attempt.device_indices, strict=True)
    return [(node, index) for node, indices in pairs for index in indices]
