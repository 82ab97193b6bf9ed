"""The tabs of the admin pages, each for those whose role has its permission."""

import json
from typing import Any

from flask import Response

from app.security.permissions import Permission
from app.web.pages import is_partial, page, part

TABS = (
    ("Keys", "web_admin_keys.keys", Permission.MANAGE_KEYS),
    ("Projects", "web_admin_projects.projects", Permission.VIEW),
    ("Queues", "web_admin_queues.queues", Permission.VIEW),
    ("Webhooks", "web_admin_webhooks.webhooks", Permission.VIEW),
    ("Audit", "web_admin_audit.entries", Permission.VIEW_AUDIT),
    ("People", "web_admin_people.people", Permission.MANAGE_KEYS),
    ("Sign-ins", "web_admin_sign_ins.sign_ins", Permission.MANAGE_KEYS),
)


def admin_page(template: str, **values: Any) -> Response:
    """A page below `Admin`, with the tabs above it."""
    return page(template, admin_tabs=TABS, **values)


def shown_once(template: str, **values: Any) -> Response:
    """The answer to an action that made a secret, which no other page can show: it takes the place of the form."""
    return part(template, **values) if is_partial() else admin_page("admin/once.html", once=template, **values)


def pretty(document: object) -> str:
    """A document that was stored, for people to read."""
    return json.dumps(document, indent=2, ensure_ascii=False)
