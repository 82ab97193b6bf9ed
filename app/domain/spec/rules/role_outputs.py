"""Outputs of roles whose instances may be on other nodes than rank 0, from where they are not published."""

import re
from collections.abc import Iterator, Sequence

from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import document_of
from app.domain.spec.roles import SAME_NODE, JobRole

OUTPUT_DIR = "TRAINYARD_OUTPUT_DIR"
MOST_SHOWN, LONGEST = 3, 100
_BETWEEN = re.compile(r"[\s'\"]+")
# Hidden files are notes of the platform's own wrappers, which need not be published.
_VISIBLE = re.compile(rf"{OUTPUT_DIR}(?![)}}]?/\.)")


def unpublished(document: JobDocument, *, nodes: int) -> Iterator[tuple[str, str]]:
    """(field, why) of roles that write to the output of a job that publishes it, and may do so on another node.

    ``nodes``: how many the installation has; on a single one everything is published.
    """
    output = document.output_config
    if nodes <= 1 or not (output.output_path or output.push_to_hub):
        return
    for number, role in enumerate(document.tasks):
        if _is_with_rank_0(document, number):
            continue
        if found := list(dict.fromkeys(_mentions(document, role))):
            where, writer = (role.role, "the first role") if number else ("its other instances", "its first instance")
            why = (
                f"of {', '.join(found[:MOST_SHOWN])} only files on rank 0's node are published, and {where} may run on "
                "another node, whose files are kept only among the job's artifacts; write to your own storage, "
                f"let {writer} write them, or require same_node in tasks.affinity"
            )
            yield f"tasks.{number}", why


def _is_with_rank_0(document: JobDocument, number: int) -> bool:
    """Whether all instances of the role are on the node of the first role's first instance, however they are placed."""
    common = _followed(document, document.tasks[0]) & _followed(document, document.tasks[number])
    return any(each.role in common and (each.count == 1 or each.role in _beside(each)) for each in document.tasks)


def _followed(document: JobDocument, role: JobRole) -> set[str]:
    """The role, and those on whose nodes alone all of its instances are: what they follow it follows, too."""
    roles = {each.role: each for each in document.tasks}
    found, to_follow = {role.role}, [role]
    while to_follow:
        more = _beside(to_follow.pop()) - found
        found |= more
        to_follow += [roles[name] for name in more]
    return found


def _beside(role: JobRole) -> set[str]:
    return {each.role for each in role.affinity if each.required and each.where == SAME_NODE}


def _mentions(document: JobDocument, role: JobRole) -> Iterator[str]:
    """The words of its command and arguments, and the variables, that name the directory."""
    training = document_of(document, role).training_config
    framework = training.framework
    words: Sequence[str] = (*framework.custom_command, *(framework.custom_arguments or ()))
    for word in words:
        yield from (each[:LONGEST] for each in _BETWEEN.split(word) if _VISIBLE.search(each))
    yield from (name for name, value in training.environment.items() if _VISIBLE.search(value))
