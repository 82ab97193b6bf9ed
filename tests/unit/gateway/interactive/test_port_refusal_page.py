"""The page that a browser shows instead of a port's."""

from tornado.httputil import HTTPHeaders

from app.gateway.interactive.port_refusal_page import page, wants_page


def test_what_a_job_says_is_text():
    shown = page(502, "its answer is not HTTP/1.1: <script>alert(1)</script>\n\n    <b>", way_in="")

    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "<pre><code>&lt;b&gt;</code></pre>" in shown


def test_the_way_in_is_an_attribute():
    assert '<a href="https://x/&quot;&gt;">' in page(401, "why", way_in='https://x/">')


def test_a_status_without_words_of_its_own_has_its_phrase():
    assert "<h1>Method Not Allowed</h1>" in page(405, "asked with GET", way_in="")


def test_browsers_want_pages_and_programs_do_not():
    assert wants_page(HTTPHeaders({"Accept": "text/HTML,application/xhtml+xml"}))
    assert not wants_page(HTTPHeaders({"Accept": "*/*"}))
    assert not wants_page(HTTPHeaders())
