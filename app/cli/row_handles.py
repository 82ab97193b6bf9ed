"""Handles of sweeps, evaluations and batches on the command line: a whole id, the end of one, a name, or `@last`.

They are resolved while the command line is read, so that commands only see ids.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import click

from app.cli.connection import server
from app.cli.handles import LAST, LEAST_TO_STOP, JobHandle
from app.domain.spec.inference import EVALUATION
from app.domain.suggestions import did_you_mean
from trainyard.client import Client, Conflict, NotFound

MOST_SHOWN = 5
MOST_COMPARED = 100  # of the newest, with a name that none has
MOST_BATCHES = 1000  # of the newest, which are searched by the end of an id
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
Command = TypeVar("Command", bound=Callable[..., Any])


class _Row(NamedTuple):
    id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """``matching``: the rows that a handle stands for. ``newest``: of the caller's key with `mine`, else of all."""

    noun: str
    lists: str  # the command that lists them
    prefix: str
    matching: Callable[[Client, str], Iterable[_Row]]
    newest: Callable[[Client, bool], Iterable[_Row]]

    def is_whole(self, handle: str) -> bool:
        return re.fullmatch(f"{self.prefix}-{_UUID}", handle) is not None


def _sweeps(client: Client, **filters: Any) -> Iterable[_Row]:
    return (_Row(each["sweep_id"], each["name"]) for each in client.sweeps.list(**filters))


def _evaluations(client: Client, **filters: Any) -> Iterable[_Row]:
    return (_Row(each.job_id, each.name) for each in client.list(kind=EVALUATION, **filters))


def _batches(client: Client) -> Iterable[_Row]:
    """They have no names."""
    return (_Row(each["id"], "") for each in islice(client.batches.list(), MOST_BATCHES))


_SWEEPS = _Kind(
    noun="sweep",
    lists="sweep list",
    prefix="sweep",
    matching=lambda client, handle: _sweeps(client, handle=handle),
    newest=lambda client, mine: _sweeps(client, created_by="me" if mine else ""),
)
_EVALUATIONS = _Kind(
    noun="evaluation",
    lists="eval list",
    prefix="job",
    matching=lambda client, handle: _evaluations(client, handle=handle),
    newest=lambda client, mine: _evaluations(client, created_by="me" if mine else ""),
)
_BATCHES = _Kind(
    noun="batch",
    lists="batches list",
    prefix="batch",
    matching=lambda client, handle: (row for row in _batches(client) if row.id.endswith(handle)),
    newest=lambda client, _: _batches(client),
)


def sweep_argument(command: Command) -> Command:
    """``SWEEP_ID`` for a command, as the argument ``sweep_id``: the whole id, whatever stands for it."""
    return _argument("sweep_id", _SWEEPS)(command)


def evaluation_argument(command: Command) -> Command:
    """``EVALUATION_ID`` for a command, as the argument ``evaluation_id``: the whole id."""
    return _argument("evaluation_id", _EVALUATIONS)(command)


def evaluations_argument(command: Command) -> Command:
    """``EVALUATION EVALUATION…`` for a command, as the argument ``evaluation_ids``: whole ids."""
    return _argument("evaluation_ids", _EVALUATIONS, nargs=-1, required=True, metavar="EVALUATION EVALUATION…")(command)


def evaluation_id_of(context: click.Context, _option: click.Parameter, handle: str) -> str:
    """The callback of an option that takes one evaluation, or nothing."""
    return _resolved(_EVALUATIONS, context, handle) if handle else ""


def batch_argument(command: Command) -> Command:
    """``BATCH_ID`` for a command, as the argument ``batch_id``: the whole id."""
    return _argument("batch_id", _BATCHES)(command)


def batch_to_stop_argument(command: Command) -> Command:
    """As `batch_argument`, for commands that stop it: the newest batch may be another person's."""
    return _argument("batch_id", _BATCHES, takes_last=False)(command)


def _argument(name: str, kind: _Kind, *, takes_last: bool = True, **more: Any) -> Callable[[Command], Command]:
    def resolve(context: click.Context, _argument: click.Parameter, value: Any) -> Any:  # noqa: ANN401 – click's
        if isinstance(value, tuple):
            return tuple(_resolved(kind, context, handle) for handle in value)
        if value == LAST and not takes_last:
            raise click.BadParameter(f"{LAST} may be another person's {kind.noun}: name it by its id", context)
        return _resolved(kind, context, value)

    return click.argument(name, type=JobHandle(), callback=resolve, **more)


def _resolved(kind: _Kind, context: click.Context, handle: str) -> str:
    """The whole id. Raises ClickException for none, for several, and for a short end of an id."""
    if context.resilient_parsing or kind.is_whole(handle):  # a shell that completes asks nothing here
        return handle
    with server(context.params.get("project") or "") as client:
        found = list(islice(_rows(kind, client, handle), MOST_SHOWN + 1))
        if not found:
            raise _not_found(
                f"no {kind.noun} {handle!r}{_meant(kind, client, handle)}; `trainyard {kind.lists}` shows them"
            )
        if len(found) > 1:
            message = f"{handle!r} stands for several: {_listed(found)}; name one by its id"
            raise Conflict(HTTPStatus.CONFLICT, {"code": "AMBIGUOUS", "message": message})
        if len(handle) < LEAST_TO_STOP and handle not in (LAST, found[0].name):
            raise _not_found(
                f"no {kind.noun} is named {handle!r}; {_listed(found)} only ends so: name it by {LEAST_TO_STOP} or "
                "more characters of its id"
            )
    return found[0].id


def _not_found(message: str) -> NotFound:
    return NotFound(HTTPStatus.NOT_FOUND, {"code": "NOT_FOUND", "message": message})


def _rows(kind: _Kind, client: Client, handle: str) -> Iterable[_Row]:
    return islice(kind.newest(client, True), 1) if handle == LAST else kind.matching(client, handle)


def _meant(kind: _Kind, client: Client, handle: str) -> str:
    if handle == LAST:
        return f": this key {'sees' if kind is _BATCHES else 'has made'} none"
    names = {row.name for row in islice(kind.newest(client, False), MOST_COMPARED)}
    return did_you_mean(handle, names - {"", handle})  # one of another kind may be named so


def _listed(found: Sequence[_Row]) -> str:
    shown = ", ".join(f"{row.id} ({row.name})" if row.name else row.id for row in found[:MOST_SHOWN])
    return f"{shown}, …" if len(found) > MOST_SHOWN else shown
