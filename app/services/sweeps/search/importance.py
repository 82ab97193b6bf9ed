"""The importance of a sweep's parameters, computed by the process that knows Optuna."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from app.domain.sweeps.figures import best_share
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.space import Space
from app.services.sweeps.search.search_child import COMMAND, ChildFailed, SearchChild
from app.services.sweeps.search.suggestions import ANSWER_SECONDS, REQUEST_SLOTS, SearchUnavailable


def question(space: Space, completed: Sequence[Observation], *, objectives: int) -> dict[str, Any]:
    """``completed``: with signs by which smaller objectives are better."""
    return {
        "kind": "importance",
        "space": space.to_json(),
        "directions": objectives,
        "observations": [each.to_json() for each in completed],
        "share_of_best": best_share(len(completed)),
    }


def answer(asked: Mapping[str, Any], *, command: Sequence[str] = COMMAND) -> dict[str, float]:
    """The share of each parameter that varies, by a process of its own: it takes a second or two.

    Raises SearchUnavailable where Optuna is not installed, or the process fails.
    """
    with REQUEST_SLOTS, closing(SearchChild(command)) as child:
        try:
            found = child.ask(json.dumps({**asked}), seconds=ANSWER_SECONDS)
        except ChildFailed as error:
            raise SearchUnavailable(f"the process that computes importances failed: {error}; retry later") from error
    if "missing" in found:
        raise SearchUnavailable(
            f"importances need {found['missing']}, which is not installed here: pip install 'trainyard[search]'"
        )
    if "error" in found:
        raise SearchUnavailable(f"importances could not be computed: {found['error']}")
    shares: dict[str, float] = found["importance"]
    return shares
