"""The notice of an action in its cookie, which browsers and proxies bound in bytes."""

import pytest
from flask import Flask, Response

from app.web import cookies


@pytest.mark.parametrize("text", ["a" * 5000, "é" * 5000, "😀" * 5000, '";,' * 2000, "a\ud800b"])
def test_a_notice_fits_into_a_cookie(text: str):
    response = Response()
    with Flask("app").test_request_context(base_url="https://localhost"):
        cookies.set_notice(response, text)

    cookie = response.headers["Set-Cookie"]
    assert len(cookie) < 2300
    assert "; Secure; HttpOnly; Path=/ui; SameSite=Strict" in cookie


def test_with_tls_a_sign_in_that_continues_elsewhere_is_of_this_host_alone():
    response = Response()
    with Flask("app").test_request_context(base_url="https://localhost"):
        cookies.set_sign_in(response, "sealed")

    assert response.headers["Set-Cookie"].startswith("__Host-trainyard-sign-in=sealed; ")
    assert "; Secure; HttpOnly; Path=/; SameSite=Lax" in response.headers["Set-Cookie"]
