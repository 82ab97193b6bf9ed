"""Answers questions, a line of JSON each, until its standard input ends or there is none for a minute.

A question has id, space, method, place, seed, directions, observations and startup_trials; its answer id, values and
note, or id and error, with field where `require` is at fault, and missing where a library is not installed. One with
kind `importance` has share_of_best in place of method, place, seed and startup_trials; its answer importance.
"""

import ctypes
import json
import logging
import os
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from app.domain.errors import BadSpec
from app.search.methods import IMPORTANCE, answer, importance
from app.search.question import question_of

IDLE_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1
_PIECE_BYTES = 1 << 20


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Libraries announce experimental features and what they have drawn; both are known here.
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    for line in _lines(sys.stdin.fileno()):
        text = f"{json.dumps(_answered(json.loads(line)))}\n".encode()
        while text:
            text = text[os.write(answers, text) :]


def _lines(descriptor: int) -> Iterator[bytes]:
    pieces: list[bytes] = []
    while select.select([descriptor], [], [], IDLE_SECONDS)[0]:
        piece = os.read(descriptor, _PIECE_BYTES)
        if not piece:
            return
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield b"".join([*pieces, line])
            pieces = []
        pieces.append(rest)


def _answered(raw: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"id": raw["id"], **_found(raw)}
    except BadSpec as error:
        return {"id": raw["id"], "error": error.message, "field": error.field}
    except ModuleNotFoundError as error:
        return {"id": raw["id"], "error": str(error), "missing": error.name}
    except Exception as error:  # noqa: BLE001 – the outermost loop: one bad question ends no other's answer
        traceback.print_exc()
        return {"id": raw["id"], "error": f"{type(error).__name__}: {error}"}


def _found(raw: Mapping[str, Any]) -> dict[str, Any]:
    if raw.get("kind") == IMPORTANCE:
        return {"importance": importance(raw)}
    found = answer(question_of(raw))
    return {"values": found.values, "note": found.note}


if __name__ == "__main__":
    main()
