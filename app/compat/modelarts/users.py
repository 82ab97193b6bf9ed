"""The user that engines of ModelArts' tasks run as ↔ the user of a native job document. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.errors import BadSpec
from app.schemas.spec.field_verdicts import warning

FIELD = "tasks.algorithm.engine.run_user"
_ID = re.compile(r"[0-9]+")


def user_of(tasks: Sequence[Mapping[str, Any]], warnings: list[str]) -> dict[str, Any]:
    """The field ``user`` of ``resource_config``, if all tasks name the same: instances on a node share a sandbox.

    Raises BadSpec for root.
    """
    named = [(task["algorithm"].get("engine") or {}).get("run_user") or "" for task in tasks]
    if not any(named):
        return {}
    if not all(_ID.fullmatch(each) for each in named if each):
        warnings.append(warning(FIELD, "only a user ID has an effect, such as 1000: users have no names here"))
        return {}
    for number, each in enumerate(named):
        if each and int(each) == 0:
            raise BadSpec(
                "0 is root, as which no job runs; give a user ID such as 1000, or leave it out",
                field=f"tasks.{number}.algorithm.engine.run_user",
            )
    if len(set(named)) > 1:
        warnings.append(warning(FIELD, "the tasks of a job have one user: name the same for every task"))
        return {}
    return {"user": {"uid": int(named[0]), "required": False}}
