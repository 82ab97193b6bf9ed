"""Projects: creating, describing and deleting them, what their jobs may connect to, mount and demand of nodes."""

from typing import Any

from flask import Blueprint, Response, url_for

from app.domain.administration import (
    AS_INSTALLED,
    CREATE_CLAIMS,
    MAKES_NONE,
    MAKES_SERVICES,
    OPTIONAL_DIGESTS,
    REQUIRED_DIGESTS,
    USE_CLAIMS,
)
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.pagination import page_request
from app.http.request_body import validated
from app.schemas.documents import RequestSchema
from app.schemas.projects import ChangeProjectSchema, CreateProjectSchema
from app.schemas.queries import OrderBy
from app.schemas.strict_fields import Text
from app.security.permissions import Permission
from app.services.access import projects as service
from app.services.queues import project_quotas
from app.web.admin_frame import admin_page
from app.web.form_fields import Lines
from app.web.forms import form
from app.web.lists import WebListSchema, listed
from app.web.pages import done

blueprint = Blueprint("web_admin_projects", __name__)
_CREATE, _CHANGE = CreateProjectSchema(), ChangeProjectSchema()
_CLAIM_RIGHTS = {CREATE_CLAIMS: "jobs may create missing ones", USE_CLAIMS: "existing ones only"}
_IMAGE_DIGESTS = {OPTIONAL_DIGESTS: "a tag is enough", REQUIRED_DIGESTS: "the digest is required"}
_AUTO_SERVICES = {
    AS_INSTALLED: "as the settings of the gateways say",
    MAKES_SERVICES: "a service is made",
    MAKES_NONE: "the request is refused",
}


class ProjectListSchema(WebListSchema):
    order_by = OrderBy("created_at", "name", default="name")


class ProjectFormSchema(RequestSchema):
    """Checked by the rules of the API: what it says of a field is said at the form."""

    name = Text()
    description = Text(load_default="")
    egress = Lines(load_default=[])
    claims = Text()
    auto_services = Text()
    image_sources = Lines(load_default=[])
    image_digests = Text()
    required_capabilities = Lines(load_default=[])


@blueprint.get("/admin/projects")
@operation("List projects", permission=Permission.VIEW, media="html", query=ProjectListSchema)
def projects(query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        found = listed(service.page(session, caller(), page_request(query)), query)
    return admin_page("admin/projects.html", projects=found, claim_rights=_CLAIM_RIGHTS)


@blueprint.post("/admin/projects")
@operation("Create a project", permission=Permission.CLUSTER_ADMIN, media="html", **form(ProjectFormSchema))
def create_project(body: dict[str, Any]) -> Response:
    wanted = validated(_CREATE, body)
    made = service.create(plane().db, caller(), **wanted)
    return done(f"The project {made.name} is made.", url_for("web_admin_projects.project", name=made.name))


@blueprint.get("/admin/projects/<name>")
@operation("Show a project", permission=Permission.VIEW, media="html")
def project(name: str) -> Response:
    with plane().db.read() as session:
        found = service.visible(session, caller(), name)
        usage = project_quotas.usage(session, name)
    return admin_page(
        "admin/project.html",
        project=found,
        usage=usage,
        claim_rights=_CLAIM_RIGHTS,
        auto_services=_AUTO_SERVICES,
        image_digests=_IMAGE_DIGESTS,
    )


@blueprint.post("/admin/projects/<name>")
@operation(
    "Set the description, the services, the claims, the images and the demands of a project",
    permission=Permission.CLUSTER_ADMIN,
    media="html",
    **form(ProjectFormSchema),
)
def change_project(name: str, body: dict[str, Any]) -> Response:
    service.change(plane().db, caller(), name, validated(_CHANGE, body))
    return done("Saved.", url_for("web_admin_projects.project", name=name))


@blueprint.post("/admin/projects/<name>/delete")
@operation("Delete a project", permission=Permission.CLUSTER_ADMIN, media="html", **form())
def delete_project(name: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    service.delete(plane().db, plane().storage, caller(), name)
    return done(f"The project {name} is deleted, with its keys and webhooks.", url_for("web_admin_projects.projects"))
