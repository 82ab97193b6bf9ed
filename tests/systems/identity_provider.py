"""A real OpenID provider on loopback: Authlib's server, of which a test says who is signed in and what it tells."""

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode
from flask import Flask, Response, jsonify, redirect, request
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server

CLIENT_ID, CLIENT_SECRET = "trainyard", "client's secret: ü &+%"


@cache
def _key() -> RSAKey:
    """One for all providers of a process: to find its primes takes longer than a test."""
    return RSAKey.generate_key(2048, {"use": "sig", "kid": "one"})


@dataclass(frozen=True)
class Person:
    subject: str
    claims: dict[str, Any]


@dataclass
class Provider:
    """``person`` None: consent is refused. ``changes`` go into each ID token; it leads back to ``callbacks`` only."""

    url: str = ""
    person: Person | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    in_userinfo: bool = False
    ends_sign_ins: bool = False  # it has a page to sign out at
    key: RSAKey = field(default_factory=_key)
    signs_with: RSAKey | None = None
    callbacks: tuple[str, ...] = ("http://localhost/ui/login/oidc/callback",)
    codes: dict[str, "Code"] = field(default_factory=dict)
    tokens: dict[str, Person] = field(default_factory=dict)


class Client(ClientMixin):  # type: ignore[misc]  # Authlib has no types
    """The dashboard, as it is registered."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    def get_client_id(self) -> str:
        return CLIENT_ID

    def get_default_redirect_uri(self) -> str:
        return self.provider.callbacks[0]

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.provider.callbacks

    def check_client_secret(self, client_secret: str) -> bool:
        return secrets.compare_digest(client_secret.encode(), CLIENT_SECRET.encode())

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return endpoint == "token" and method == "client_secret_basic"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class Code:
    person: Person
    redirect_uri: str
    scope: str
    nonce: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


def _grant_of(provider: Provider) -> type[AuthorizationCodeGrant]:
    class Grant(AuthorizationCodeGrant):  # type: ignore[misc]  # the same
        TOKEN_ENDPOINT_AUTH_METHODS: ClassVar = ["client_secret_basic"]

        def save_authorization_code(self, code: str, request: Any) -> None:
            given = request.payload.data
            provider.codes[code] = Code(
                person=request.user,
                redirect_uri=request.payload.redirect_uri,
                scope=request.payload.scope,
                nonce=given.get("nonce", ""),
                code_challenge=given["code_challenge"],
                code_challenge_method=given["code_challenge_method"],
            )

        def query_authorization_code(self, code: str, client: Client) -> Code | None:
            del client
            return provider.codes.get(code)

        def delete_authorization_code(self, authorization_code: Code) -> None:
            provider.codes = {code: each for code, each in provider.codes.items() if each is not authorization_code}

        def authenticate_user(self, authorization_code: Code) -> Person:
            return authorization_code.person

    return Grant


def _tokens_of(provider: Provider) -> OpenIDCode:
    class Tokens(OpenIDCode):  # type: ignore[misc]  # the same
        def exists_nonce(self, nonce: str, request: Any) -> bool:
            del nonce, request
            return False

        def resolve_client_private_key(self, client: Client) -> RSAKey:
            del client
            return provider.signs_with or provider.key

        def get_encode_header(self, client: Client) -> dict[str, str]:
            return {**super().get_encode_header(client), "kid": "one"}

        def get_client_claims(self, client: Client) -> dict[str, Any]:
            return {"iss": provider.url, "aud": [client.get_client_id()]}

        def generate_user_info(self, user: Person, scope: str) -> dict[str, Any]:
            del scope
            told = {} if provider.in_userinfo else user.claims
            return {"sub": user.subject, **told, **provider.changes}

    return Tokens(require_nonce=True)


def application(provider: Provider) -> Flask:
    app = Flask("provider")

    def remember(token: dict[str, Any], request: Any) -> None:
        provider.tokens[token["access_token"]] = request.user

    server = AuthorizationServer(app, query_client=lambda given: Client(provider) if given == CLIENT_ID else None)
    server.save_token = remember
    server.register_grant(_grant_of(provider), [CodeChallenge(required=True), _tokens_of(provider)])

    @app.get("/.well-known/openid-configuration")
    def configuration() -> Response:
        names = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        if provider.ends_sign_ins:
            names["end_session"] = "logout"
        endpoints = {f"{name}_endpoint": f"{provider.url}/{path}" for name, path in names.items()}
        return jsonify({"issuer": provider.url, "jwks_uri": f"{provider.url}/keys", **endpoints})

    @app.get("/keys")
    def keys() -> Response:
        return jsonify({"keys": [provider.key.as_dict(private=False)]})

    @app.get("/authorize")
    def authorize() -> Any:
        grant = server.get_consent_grant(end_user=provider.person)
        return server.create_authorization_response(grant_user=provider.person, grant=grant)

    @app.get("/logout")
    def logout() -> Any:
        assert request.args["client_id"] == CLIENT_ID
        provider.person = None
        return redirect(request.args["post_logout_redirect_uri"])

    @app.post("/token")
    def token() -> Any:
        return server.create_token_response()

    @app.get("/userinfo")
    def userinfo() -> Response:
        person = provider.tokens[request.headers["Authorization"].removeprefix("Bearer ")]
        return jsonify({"sub": person.subject, **person.claims})

    return app


@contextmanager
def identity_provider() -> Iterator[Provider]:
    """One that listens; its environment must have AUTHLIB_INSECURE_TRANSPORT, as it has no TLS."""
    provider = Provider()
    server = make_server("127.0.0.1", 0, application(provider))
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
