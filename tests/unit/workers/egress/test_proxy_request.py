"""Heads of requests to the proxy."""

import pytest

from workers.egress.proxy_request import BadProxyRequest, ProxyRequest, parse


def test_tunnel():
    assert parse(b"CONNECT Example.org.:443 HTTP/1.1\r\nHost: other\r\n\r\n") == ProxyRequest("example.org", 443)


def test_plain_request_is_sent_in_origin_form_to_the_host_that_was_checked():
    head = (
        b"POST http://example.org:8080/a/b?c=d HTTP/1.1\r\nHost: other.example\r\nhost : third.example\r\n"
        b"Proxy-Authorization: x\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n"
    )

    assert parse(head) == ProxyRequest(
        "example.org",
        8080,
        b"POST /a/b?c=d HTTP/1.1\r\nHost: example.org:8080\r\nConnection: close\r\nContent-Length: 2\r\n\r\n",
        length=2,
    )
    assert parse(b"GET http://example.org HTTP/1.0\r\n\r\n").forwarded.startswith(
        b"GET / HTTP/1.1\r\nHost: example.org\r\n"
    )


@pytest.mark.parametrize(
    "head",
    [
        b"CONNECT example.org HTTP/1.1\r\n\r\n",
        b"CONNECT example.org:0 HTTP/1.1\r\n\r\n",
        b"CONNECT example.org:65536 HTTP/1.1\r\n\r\n",
        b"CONNECT example.org:443 HTTP/2\r\n\r\n",
        b"CONNECT [::1]:443 HTTP/1.1\r\n\r\n",
        b"CONNECT a@b:443 HTTP/1.1\r\n\r\n",
        b"CONNECT ex\xe4mple.org:443 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET https://example.org/ HTTP/1.1\r\n\r\n",
        b"GET ftp://example.org/ HTTP/1.1\r\n\r\n",
        b"GET http://user:pass@example.org/ HTTP/1.1\r\n\r\n",
        b"GET http://example.org:x/ HTTP/1.1\r\n\r\n",
        b"GET http:///x HTTP/1.1\r\n\r\n",
        b"GET http://example.org/ HTTP/1.1\r\nA: b\nHost: c\r\n\r\n",
        b"GET http://example.org/ HTTP/1.1\r\nA: b\r\n Host: c\r\n\r\n",
        b"POST http://example.org/ HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
        b"POST http://example.org/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST http://example.org/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
        b"POST http://example.org/ HTTP/1.1\r\nContent-Length: 1, 2\r\n\r\n",
        b"hello\r\n\r\n",
        b"\r\n\r\n",
    ],
)
def test_other_requests_are_refused(head):
    with pytest.raises(BadProxyRequest):
        parse(head)
