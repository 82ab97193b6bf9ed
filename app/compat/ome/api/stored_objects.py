"""Objects that are kept as their clients describe them: read, written, rehearsed, watched. Of one kind, or of two
where those of a namespace and those of the cluster are told apart.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic

from flask import request
from sqlalchemy.orm import Session

from app.compat.ome.api import patches
from app.compat.ome.api.answers import answered, told
from app.compat.ome.api.bodies import delete_options, loaded
from app.compat.ome.api.objects import (
    MODIFIED,
    AlreadyThere,
    Rehearsed,
    changed_by,
    is_rehearsal,
    kept_of,
    refuse_other,
    refuse_other_name,
)
from app.compat.ome.api.sources import Losses, Source, fixed
from app.compat.ome.dialect import API_VERSION
from app.compat.ome.from_native import moment, resource_version
from app.domain.errors import Conflict, NotFound
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.models.manifest import Manifest
from app.schemas.documents import DocumentSchema
from app.services.requests.idempotency import forget
from app.services.stored_manifests import ManifestStore, Row

Query = dict[str, Any]
Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Kept(Generic[Row]):
    """``check`` raises InvalidRequest for an object that no job could use, and tells its warnings. ``built_in``: specs
    of those of the cluster that are there without having been made.
    """

    kind: str
    store: ManifestStore[Row]
    schema: DocumentSchema
    losses: Losses
    check: Callable[[Object], list[str]]
    cluster_kind: str = ""
    built_in: Mapping[str, Object] = field(default_factory=dict)

    def listed(self, project: str, query: Query) -> Any:
        source = Source(
            kind=self._kind(project), look=fixed(partial(self._objects, project=project)), losses=self.losses,
            existing=None, newest=partial(self.store.newest, project=project),
        )  # fmt: skip
        return answered(source, query)

    def read(self, project: str, name: str) -> dict[str, Any]:
        """Raises NotFound."""
        with plane().db.read() as session:
            row = self.store.find(session, project, name)
            if row is not None:
                return self._object_of(row)
        if not project and name in self.built_in:
            return self._built_in(name)
        raise NotFound(f'{self._plural(project)} "{name[:64]}" not found')

    def create(self, project: str, wanted: Object, query: Query) -> Reply:
        """Raises Conflict when there is one of that name."""
        name = wanted["metadata"]["name"]
        refuse_other(wanted, self._kind(project), project, name)
        try:
            return self._written(self.store.create, project, wanted, query, status=201)
        except Conflict as error:
            said = f'{self._plural(project)} "{name}" already exists'
            raise AlreadyThere(said, field="metadata.name") from error

    def replace(self, project: str, name: str, wanted: Object, query: Query) -> Reply:
        """What is built in is made when it is changed."""
        refuse_other(wanted, self._kind(project), project, name)
        current = self.read(project, name)
        said = wanted["metadata"].get("resourceVersion")
        if said is not None and said != current["metadata"]["resourceVersion"]:
            raise Conflict(MODIFIED)
        with plane().db.read() as session:
            is_made = self.store.find(session, project, name) is not None
        if not is_made:
            return self._written(self.store.create, project, wanted, query)
        expected = current["metadata"]["generation"] if said is not None else None
        return self._written(partial(self.store.change, expected=expected), project, wanted, query)

    def patch(self, project: str, name: str, body: Object, query: Query) -> Reply:
        try:
            current = self.read(project, name)
        except NotFound:
            if request.mimetype != patches.APPLY:
                raise
            refuse_other_name(body, name)
            return self.create(project, loaded(self.schema, dict(body)), query)
        return self.replace(project, name, loaded(self.schema, changed_by(current, body)), query)

    def delete(self, project: str, name: str, query: Query) -> Reply:
        current = self.read(project, name)
        if current["metadata"]["uid"] == name:  # which is built in; of others it is a UUID
            raise Conflict(f"{name} is built in and stays")
        if not is_rehearsal(delete_options(), current) and "dryRun" not in query:
            self.store.delete(plane().db, caller(), project, name)
        details = {"name": name}
        return Reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})

    def _written(
        self, write: Callable[..., Row], project: str, wanted: Object, query: Query, *, status: int = 200
    ) -> Reply:
        """By `write`; in a dry run what it would be."""
        warnings = self.check(wanted)
        remember = self._rehearse if "dryRun" in query else forget
        parts = {"spec": wanted["spec"], **kept_of(wanted["metadata"])}
        try:
            row = write(plane().db, caller(), project, wanted["metadata"]["name"], remember=remember, **parts)
        except Rehearsed as ended:
            return told(ended.found, status, warnings)
        return told(self._object_of(row), status, warnings)

    def _rehearse(self, _session: Session, row: Manifest) -> None:
        raise Rehearsed(self._object_of(row))

    def _objects(self, session: Session, project: str) -> list[dict[str, Any]]:
        """By name."""
        found = [self._object_of(each) for each in self.store.of(session, project)]
        if not project:
            made = {each["metadata"]["name"] for each in found}
            found += [self._built_in(name) for name in self.built_in if name not in made]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def _kind(self, project: str) -> str:
        return self.kind if project else self.cluster_kind

    def _plural(self, project: str) -> str:
        return f"{self._kind(project).lower()}s.ome.io"

    def _object_of(self, row: Manifest) -> dict[str, Any]:
        namespace = {"namespace": row.project} if row.project else {}
        metadata = {
            "name": row.name,
            **namespace,
            "uid": row.id.partition("-")[2],
            "resourceVersion": resource_version(row.updated_at, row.version),
            "generation": row.version,
            "creationTimestamp": moment(row.created_at),
            "labels": row.labels,
            "annotations": row.annotations,
        }
        return {"apiVersion": API_VERSION, "kind": self._kind(row.project), "metadata": metadata, "spec": row.spec}

    def _built_in(self, name: str) -> dict[str, Any]:
        metadata = {
            "name": name, "uid": name, "resourceVersion": "100001", "generation": 1,
            "labels": {"ome.io/built-in": "true"},
        }  # fmt: skip
        spec = dict(self.built_in[name])
        return {"apiVersion": API_VERSION, "kind": self.cluster_kind, "metadata": metadata, "spec": spec}
