"""Role-based access control: the table of roles and permissions, and the authenticated caller."""

from dataclasses import dataclass
from enum import StrEnum

from app.domain.errors import Forbidden, NotYours
from app.domain.names import DEFAULT_PROJECT
from app.domain.suggestions import did_you_mean


class Permission(StrEnum):
    VIEW = "view"
    MANAGE = "manage"  # submit and control jobs
    EVALUATE = "evaluate"
    INFER = "infer"  # ask models that services answer with
    LIST_MODELS = "list_models"  # clients for chats list them before they ask
    MANAGE_KEYS = "manage_keys"  # of the caller's project
    VIEW_AUDIT = "view_audit"  # of the caller's project
    CLUSTER_ADMIN = "cluster_admin"  # nodes, queues, projects, and the keys of every project


class Role(StrEnum):
    INFERENCE = "inference"  # lists and asks models, and may do nothing else
    VIEWER = "viewer"
    USER = "user"
    ADMIN = "admin"
    SUPER_ADMIN = "super_admin"


_OF_USERS = frozenset(
    {Permission.VIEW, Permission.MANAGE, Permission.EVALUATE, Permission.INFER, Permission.LIST_MODELS}
)
PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.INFERENCE: frozenset({Permission.INFER, Permission.LIST_MODELS}),
    Role.VIEWER: frozenset({Permission.VIEW, Permission.LIST_MODELS}),
    Role.USER: _OF_USERS,
    Role.ADMIN: _OF_USERS | {Permission.MANAGE_KEYS, Permission.VIEW_AUDIT},
    Role.SUPER_ADMIN: frozenset(Permission),
}
PROJECT_ROLES = (Role.INFERENCE, Role.VIEWER, Role.USER, Role.ADMIN)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """An authenticated key. ``project`` None grants access to every project; a super admin may act within one.

    ``requests_per_minute`` and ``tokens_per_minute`` are the key's own limits for requests to models: None means what
    the gateway's settings say, 0 no limit.
    """

    key_id: str
    role: Role
    project: str | None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @property
    def home_project(self) -> str:
        """The default project of the caller's new jobs."""
        return self.project or DEFAULT_PROJECT

    @property
    def actor(self) -> str:
        """The caller's name in job events and audit entries."""
        return self.key_id

    def may(self, permission: Permission) -> bool:
        return permission in PERMISSIONS[self.role]

    def require(self, permission: Permission) -> None:
        if not self.may(permission):
            roles = ", ".join(role for role in Role if permission in PERMISSIONS[role])
            raise Forbidden(
                f"the permission {permission} is required; the role {self.role} lacks it, these have it: {roles}"
            )

    def sees(self, project: str) -> bool:
        return self.project in (None, project)

    def require_project(self, project: str) -> None:
        """Raises NotFound for another project, whose existence must not be revealed: only the own one is suggested."""
        if self.project is not None and self.project != project:
            raise NotYours(f"no project {project}{did_you_mean(project, [self.project])}")

    def require_sight(self, project: str | None, missing: str) -> None:
        """Raises NotFound with the message ``missing`` unless the caller has access to the project."""
        if self.project is not None and self.project != project:
            raise NotYours(missing)
