"""Rules of ``tasks[].affinity``: which roles are named, and what no placement could keep."""

from collections.abc import Iterable, Sequence

from app.domain.errors import BadSpec
from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import image_of_role
from app.domain.spec.roles import OTHER_NODES, SAME_NODE, JobRole, together_with

MOST_PREFERENCES = 8  # each takes another packing of all instances


def affinity_names_roles_once(document: JobDocument) -> None:
    known = [role.role for role in document.tasks]
    for number, role in enumerate(document.tasks):
        seen = set[str]()
        for place, each in enumerate(role.affinity):
            field = f"tasks.{number}.affinity.{place}.role"
            if each.role not in known:
                raise BadSpec(f"there is no role {each.role!r:.40}; known: {', '.join(known)}", field=field)
            if each.role in seen:
                raise BadSpec(f"{each.role} is named twice; leave one of them out", field=field)
            seen.add(each.role)


def few_affinities_are_preferences(document: JobDocument) -> None:
    preferred = [
        f"tasks.{number}.affinity.{place}.required"
        for number, role in enumerate(document.tasks)
        for place, each in enumerate(role.affinity)
        if not each.required
    ]
    if len(preferred) > MOST_PREFERENCES:
        raise BadSpec(
            f"at most {MOST_PREFERENCES} affinities of a job are not required, and these are {len(preferred)}; leave "
            "some out, or require them",
            field=preferred[MOST_PREFERENCES],
        )


def affinity_can_be_kept(document: JobDocument) -> None:
    """Roles that share a node, directly or by others, can't be on other nodes than each other."""
    roles = {role.role: role for role in document.tasks}
    beside = {name: _required(role, SAME_NODE) - {name} for name, role in roles.items()}
    apart = {(name, other) for name, role in roles.items() for other in _required(role, OTHER_NODES) - {name}}
    for number, role in enumerate(document.tasks):
        together = together_with(role.role, beside)
        _refuse_other_images(number, document, [roles[name] for name in sorted(together)])
        for one in sorted(together):
            for other in sorted(together):
                if (one, other) in apart:
                    raise BadSpec(
                        f"every node of {role.role} would have {_listed(together)}, and {one} may not share a node "
                        f"with {other}; leave one of these affinities out, or set its required to false",
                        field=f"tasks.{number}.affinity",
                    )
        _refuse_too_few(number, role, [roles[name] for name in sorted(together)])


def _refuse_other_images(number: int, document: JobDocument, together: Sequence[JobRole]) -> None:
    first = image_of_role(document, together[0])
    other = next((role for role in together if image_of_role(document, role) != first), None)
    if other is not None:
        raise BadSpec(
            f"every node of {document.tasks[number].role} would have {together[0].role} and {other.role}, whose images "
            "differ, and a job has one image on a node; give them the same image, or leave this affinity out",
            field=f"tasks.{number}.affinity",
        )


def _refuse_too_few(number: int, role: JobRole, together: Iterable[JobRole]) -> None:
    """A role with each instance on a node of its own needs as many of each role that these nodes must have."""
    if role.role not in _required(role, OTHER_NODES):
        return
    for other in together:
        is_whole = other.role in _required(other, SAME_NODE)
        most = 1 if is_whole else other.count
        if role.count > most:
            raise BadSpec(
                f"each of {role.count} {role.role} would be on a node of its own with an instance of {other.role}, "
                f"which is on at most {most}; ask for as many, or set required to false",
                field=f"tasks.{number}.affinity",
            )


def _required(role: JobRole, where: str) -> set[str]:
    return {each.role for each in role.affinity if each.required and each.where == where}


def _listed(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))


RULES = (affinity_names_roles_once, few_affinities_are_preferences, affinity_can_be_kept)
