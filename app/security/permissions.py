"""Who may do what: one table of roles and permissions, and the caller that it is asked about."""

from dataclasses import dataclass
from enum import StrEnum

from app.domain.errors import Forbidden, NotYours
from app.models.project import DEFAULT_PROJECT


class Permission(StrEnum):
    VIEW = "view"
    MANAGE = "manage"  # submit and control jobs
    EVALUATE = "evaluate"
    MANAGE_KEYS = "manage_keys"  # of one's own project
    VIEW_AUDIT = "view_audit"  # who did what in one's own project
    CLUSTER_ADMIN = "cluster_admin"  # nodes, queues, projects, and the keys of every project


class Role(StrEnum):
    VIEWER = "viewer"
    USER = "user"
    ADMIN = "admin"
    SUPER_ADMIN = "super_admin"


PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.VIEW}),
    Role.USER: frozenset({Permission.VIEW, Permission.MANAGE, Permission.EVALUATE}),
    Role.ADMIN: frozenset(
        {Permission.VIEW, Permission.MANAGE, Permission.EVALUATE, Permission.MANAGE_KEYS, Permission.VIEW_AUDIT}
    ),
    Role.SUPER_ADMIN: frozenset(Permission),
}
PROJECT_ROLES = (Role.VIEWER, Role.USER, Role.ADMIN)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """An authenticated key. ``project`` None means every project; a super admin may act within one."""

    key_id: str
    role: Role
    project: str | None

    @property
    def home_project(self) -> str:
        """Where the caller's new jobs go unless another project is named."""
        return self.project or DEFAULT_PROJECT

    @property
    def actor(self) -> str:
        """How the caller appears in a job's history."""
        return self.key_id

    def may(self, permission: Permission) -> bool:
        return permission in PERMISSIONS[self.role]

    def require(self, permission: Permission) -> None:
        if not self.may(permission):
            roles = ", ".join(role for role in Role if permission in PERMISSIONS[role])
            raise Forbidden(f"this needs the permission {permission}, which the role {self.role} has not; has: {roles}")

    def sees(self, project: str) -> bool:
        return self.project in (None, project)

    def require_project(self, project: str) -> None:
        """Raises NotFound: to a caller another project does not exist."""
        self.require_sight(project, f"no project {project}")

    def require_sight(self, project: str | None, missing: str) -> None:
        """Raises NotFound with what is said of a thing that is not there, unless the caller sees its project."""
        if self.project is not None and self.project != project:
            raise NotYours(missing)
