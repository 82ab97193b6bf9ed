"""Roles of people by the values of a claim of their identity provider."""

import pytest

from app.security.permissions import Role
from app.security.role_rules import Grant, grant_of, values_of
from config.oidc import OidcSettings, role_rules
from config.settings import SettingsError, load_settings

RULES = "chiefs = super_admin; cn=vision,ou=groups=admin:vision ;readers=viewer:default;"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["chiefs"], Grant(role=Role.SUPER_ADMIN, project=None)),
        (["readers", "chiefs"], Grant(role=Role.SUPER_ADMIN, project=None)),
        (["cn=vision,ou=groups"], Grant(role=Role.ADMIN, project="vision")),
        (["vision", "Chiefs", ""], None),
        ([], None),
    ],
)
def test_the_first_rule_that_fits_counts(values: list[str], expected: Grant | None):
    assert grant_of(RULES, values) == expected


def test_a_star_fits_everybody_and_no_group_of_that_name_more():
    assert grant_of("*=viewer:default", []) == Grant(role=Role.VIEWER, project="default")
    assert grant_of("chiefs=super_admin", ["*"]) is None


@pytest.mark.parametrize(
    ("claim", "values"), [("a", ["a"]), (["a", 5, None, "b"], ["a", "b"]), ({"a": True}, []), (None, []), (True, [])]
)
def test_a_claim_is_a_text_or_a_list_of_them(claim: object, values: list[str]):
    assert values_of(claim) == values


@pytest.mark.parametrize("rules", ["a", "a=", "=user:x", "a=user", "a=super_admin:x", "a=inference:x", "a=user:X"])
def test_rules_that_grant_nothing_are_refused(rules: str):
    with pytest.raises(ValueError, match="VALUE=viewer:PROJECT"):
        role_rules(rules)


def test_a_provider_without_client_or_rules_is_refused():
    with pytest.raises(SettingsError, match="TRAINYARD_OIDC_ISSUER: set TRAINYARD_OIDC_CLIENT_ID"):
        load_settings({"TRAINYARD_OIDC_ISSUER": "https://id.example.com"})
    assert OidcSettings().contradictions() == []


def test_the_client_secret_is_not_shown_in_problems():
    with pytest.raises(SettingsError) as error:
        load_settings({"TRAINYARD_OIDC_CLIENT_SECRET": "abcdef-secret", "TRAINYARD_OIDC_ROLES": "wrong"})
    assert "abcdef-secret" not in str(error.value)
