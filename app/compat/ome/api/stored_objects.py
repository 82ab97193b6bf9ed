"""Objects that are stored as their clients describe them: list, watch, read, create, replace, patch and delete.

A kind may have a cluster-scoped form of another name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic

from flask import Response, request

from app.compat.ome.api import patches
from app.compat.ome.api.answers import list_or_watch, object_reply
from app.compat.ome.api.bodies import delete_options, loaded
from app.compat.ome.api.objects import (
    MODIFIED,
    AlreadyExists,
    apply_patch,
    check_identity,
    check_name,
    is_dry_run,
    stored_metadata,
)
from app.compat.ome.api.sources import AuditActions, ObjectSource, groups_of_objects
from app.compat.ome.dialect import API_VERSION
from app.compat.ome.from_native import moment, resource_version
from app.domain.errors import Conflict, NotFound
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.schemas.documents import DocumentSchema
from app.services.kubernetes_objects import KubernetesObjectStore, Row
from app.services.rows import KubernetesObject, Session

Query = dict[str, Any]
Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StoredKind(Generic[Row]):
    """``check`` returns the warnings of an object and raises InvalidRequest for one that no job can use. ``built_in``:
    specs of cluster-scoped objects that exist from the start, by name.
    """

    kind: str
    store: KubernetesObjectStore[Row]
    schema: DocumentSchema
    audit_actions: AuditActions
    check: Callable[[Object], list[str]]
    cluster_kind: str = ""
    built_in: Mapping[str, Object] = field(default_factory=dict)

    def list_or_watch(self, project: str, query: Query) -> Reply | Response:
        source = ObjectSource(
            kind=self._kind(project),
            list_groups=groups_of_objects(partial(self._objects, project=project)),
            audit_actions=self.audit_actions,
            existing=None,
            newest=partial(self.store.newest, project=project),
        )
        return list_or_watch(source, query)

    def read(self, project: str, name: str) -> dict[str, Any]:
        """Raises NotFound."""
        with plane().db.read() as session:
            row = self.store.find(session, project, name)
            if row is not None:
                return self._object_of(row)
        if not project and name in self.built_in:
            return self._built_in(name)
        raise NotFound(f'{self._plural(project)} "{name[:64]}" not found')

    def create(self, project: str, manifest: Object, query: Query) -> Reply:
        """Raises Conflict when an object of that name exists."""
        name = manifest["metadata"]["name"]
        check_identity(manifest, self._kind(project), project, name)
        try:
            return self._written(self.store.create, project, manifest, query, status=201)
        except Conflict as error:
            message = f'{self._plural(project)} "{name}" already exists'
            raise AlreadyExists(message, field="metadata.name") from error

    def replace(self, project: str, name: str, manifest: Object, query: Query) -> Reply:
        """A built-in object is stored when it is first changed."""
        check_identity(manifest, self._kind(project), project, name)
        current = self.read(project, name)
        version = manifest["metadata"].get("resourceVersion")
        if version is not None and version != current["metadata"]["resourceVersion"]:
            raise Conflict(MODIFIED)
        with plane().db.read() as session:
            is_stored = self.store.find(session, project, name) is not None
        if not is_stored:
            return self._written(self.store.create, project, manifest, query)
        expected = current["metadata"]["generation"] if version is not None else None
        return self._written(partial(self.store.change, expected=expected), project, manifest, query)

    def patch(self, project: str, name: str, body: Object, query: Query) -> Reply:
        try:
            current = self.read(project, name)
        except NotFound:
            if request.mimetype != patches.APPLY:
                raise
            check_name(body, name)
            return self.create(project, loaded(self.schema, dict(body)), query)
        return self.replace(project, name, loaded(self.schema, apply_patch(current, body)), query)

    def delete(self, project: str, name: str, query: Query) -> Reply:
        current = self.read(project, name)
        if current["metadata"]["uid"] == name:  # of a built-in object; the uid of a stored one is a UUID
            raise Conflict(f"{name} is built in and can't be deleted")
        if not is_dry_run(delete_options(), current) and "dryRun" not in query:
            self.store.delete(plane().db, caller(), project, name)
        details = {"name": name}
        return Reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})

    def _written(
        self, write: Callable[..., Row], project: str, manifest: Object, query: Query, *, status: int = 200
    ) -> Reply:
        """Check the object and store it by ``write``, unless it is a dry run."""
        warnings = self.check(manifest)
        parts = {"spec": manifest["spec"], **stored_metadata(manifest["metadata"])}
        row = write(plane().db, caller(), project, manifest["metadata"]["name"], dry_run="dryRun" in query, **parts)
        return object_reply(self._object_of(row), status, warnings)

    def _objects(self, session: Session, project: str) -> list[dict[str, Any]]:
        """By name."""
        found = [self._object_of(each) for each in self.store.of(session, project)]
        if not project:
            stored = {each["metadata"]["name"] for each in found}
            found += [self._built_in(name) for name in self.built_in if name not in stored]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def _kind(self, project: str) -> str:
        return self.kind if project else self.cluster_kind

    def _plural(self, project: str) -> str:
        return f"{self._kind(project).lower()}s.ome.io"

    def _object_of(self, row: KubernetesObject) -> dict[str, Any]:
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
            "name": name,
            "uid": name,
            "resourceVersion": "100001",
            "generation": 1,
            "labels": {"ome.io/built-in": "true"},
        }
        spec = dict(self.built_in[name])
        return {"apiVersion": API_VERSION, "kind": self.cluster_kind, "metadata": metadata, "spec": spec}
