"""Settings of signing in at the dashboard by an identity provider (OpenID Connect)."""

import re
from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting

_RULE = re.compile(r"(?:viewer|user|admin):[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?|super_admin")


def role_rules(value: str) -> None:
    """`VALUE=ROLE:PROJECT` or `VALUE=super_admin`, with semicolons between them."""
    for each in filter(None, (part.strip() for part in value.split(";"))):
        name, _, grant = each.rpartition("=")
        if not name.strip() or _RULE.fullmatch(grant.strip()) is None:
            raise ValueError(
                "expected VALUE=viewer:PROJECT, user:PROJECT, admin:PROJECT or super_admin, separated by ;"
            )


@dataclass(frozen=True, kw_only=True)
class OidcSettings:
    issuer: str = setting(
        "",
        "URL of the OpenID provider, as it names itself; empty: people sign in at the dashboard by key",
        rules.http_url,
    )
    client_id: str = setting("", "the dashboard's client id at the provider")
    client_secret: str = setting("", "the client secret of that id")
    scopes: str = setting("openid profile email", "scopes to ask for")
    claim: str = setting(
        "groups", "the claim whose values `TRAINYARD_OIDC_ROLES` lists; `email` counts only with `email_verified`"
    )
    roles: str = setting(
        "",
        "who may do what: `VALUE=ROLE:PROJECT` or `VALUE=super_admin`, separated by `;`; the first that fits counts, "
        "`*` fits everybody, and people whom none fits cannot sign in",
        role_rules,
    )
    label: str = setting("single sign-on", "what the sign-in page calls the provider")
    timeout_seconds: float = setting(5.0, "how long a sign-in waits for the provider, in all its requests")

    def contradictions(self) -> list[str]:
        if not self.issuer or (self.client_id and self.client_secret and self.roles):
            return []
        needed = "TRAINYARD_OIDC_CLIENT_ID, TRAINYARD_OIDC_CLIENT_SECRET and TRAINYARD_OIDC_ROLES"
        return [f"TRAINYARD_OIDC_ISSUER: set {needed}, too"]
