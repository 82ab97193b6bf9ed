"""One email to a real mail server: encrypted, signed in, refused now and for good, and never with a header of a job."""

import email
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from app.database.engine import Database
from app.services.operations.diagnosis import mail
from app.services.operations.diagnosis.findings import Finding, Level
from app.services.operations.diagnosis.site import Site
from app.services.webhooks.http_post import Posted
from app.services.webhooks.smtp_mail import Mail, message_of, send
from config.settings import load_settings
from config.smtp import SmtpSettings
from tests.doubles.mail_server import PASSWORD, USER, MailServer, endless_mail_server, mail_server, scripted_mail_server
from tests.systems.servers import free_port

ANA, BO = "ana@example.org", "bo.b+lab@example.org"
MAIL = Mail(
    delivery_id="dlv-1",
    event_type="job.status",
    recipients=(ANA, BO),
    reached=(),
    refused={},
    subject="❌ support-v3 is FAILED",
    text="support-v3 is FAILED\n\nout of memory: größer als 4 GiB\n.\n" + "x" * 2000 + "\n",
    at=datetime(2026, 5, 17, 9, 30, tzinfo=UTC),
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    """It wants TLS by STARTTLS and a sign-in."""
    with mail_server(tmp_path, sign_in=True) as running:
        monkeypatch.setenv("SSL_CERT_FILE", str(running.certificate))
        yield running


@pytest.fixture
def settings(server: MailServer, tmp_path: Path) -> SmtpSettings:
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    return SmtpSettings(
        host="127.0.0.1",
        port=server.port,
        user=USER,
        password_file=password,
        sender="trainyard@example.org",
        timeout_seconds=5.0,
    )


# ---- what is sent


def test_an_email_arrives_encrypted_and_as_it_was_written(server: MailServer, settings: SmtpSettings) -> None:
    posted = send(MAIL, settings)

    assert posted == Posted(status_code=250, reached=(ANA, BO))
    (message,), (envelope,) = server.messages, server.received
    assert server.signed_in == [True]
    assert (envelope.mail_from, envelope.rcpt_tos) == ("trainyard@example.org", [ANA, BO])
    assert message.get_content().replace("\r\n", "\n") == MAIL.text
    assert message.get_content_type() == "text/plain"
    found = {name: message[name] for name in ("From", "To", "Subject", "Message-ID", "Auto-Submitted", "Date")}
    assert found == {
        "From": "Trainyard <trainyard@example.org>",
        "To": f"{ANA}, {BO}",
        "Subject": MAIL.subject,
        "Message-ID": "<dlv-1@example.org>",
        "Auto-Submitted": "auto-generated",
        "Date": "Sun, 17 May 2026 09:30:00 +0000",
    }
    assert (message["X-Trainyard-Event"], message["X-Trainyard-Delivery"]) == ("job.status", "dlv-1")
    assert (envelope.content or b"").isascii()


def test_tls_from_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server(tmp_path, security="tls") as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        settings = SmtpSettings(host="127.0.0.1", port=server.port, security="tls", sender="t@example.org")

        assert send(MAIL, settings).problem == ""
        assert len(server.messages) == 1


def test_those_who_have_it_do_not_get_it_again(server: MailServer, settings: SmtpSettings) -> None:
    posted = send(replace(MAIL, reached=(ANA,)), settings)

    assert posted.reached == (BO,)
    assert server.received[0].rcpt_tos == [BO]
    assert server.messages[0]["To"] == f"{ANA}, {BO}"


@pytest.mark.parametrize("text", ["a\nBcc: x@evil.example", "a\r\nBcc: x@evil.example", "a\rBcc: x@evil.example"])
def test_no_text_adds_a_header(text: str) -> None:
    with pytest.raises(ValueError, match="linefeed or carriage return"):
        message_of(replace(MAIL, subject=text), "t@example.org")


@pytest.mark.parametrize("subject", ["=?utf-8?q?x=0D=0ABcc:_x@evil.example?=", "a =?utf-8?b?DQpCY2M6IHhAZXZpbA==?= é"])
def test_no_encoded_word_adds_a_header(subject: str) -> None:
    """The library decodes them, and writes what it found."""
    sent = message_of(replace(MAIL, subject=subject), "t@example.org")

    message = email.message_from_bytes(sent, policy=default)
    assert message["Bcc"] is None
    assert message["Subject"] == subject.replace("=?", "= ?")
    assert message.get_content().replace("\r\n", "\n") == MAIL.text


def test_an_email_that_all_recipients_have_is_sent_to_nobody(settings: SmtpSettings, server: MailServer) -> None:
    """So it is after the others were taken out of the webhook."""
    assert send(replace(MAIL, recipients=(ANA,), reached=(ANA, BO)), settings) == Posted()
    assert server.received == []


def test_an_email_that_is_taken_late_is_not_sent_again() -> None:
    plain = b"250 OK\r\n"
    late = [(0.0, b"220 here\r\n"), (0.0, plain), (0.0, plain), (0.0, plain), (0.6, b"354 the text\r\n"), (0.6, plain)]
    with scripted_mail_server(*late) as (port, got):
        posted = send(replace(MAIL, recipients=(ANA,)), _plain(port, timeout_seconds=0.9))

    assert posted == Posted(status_code=250, reached=(ANA,))
    assert got[-1] == b"quit\r\n"  # which it does not answer
    assert b"\r\n..\r\n" in got[-2]


# ---- what is not taken


@pytest.mark.parametrize(
    ("answer", "is_final"), [("550 5.1.1 no such mailbox", True), ("452 4.2.2 mailbox full", False)]
)
def test_a_recipient_who_is_refused_keeps_others_from_nothing(
    server: MailServer, settings: SmtpSettings, answer: str, *, is_final: bool
) -> None:
    server.answers[BO] = answer

    posted = send(MAIL, settings)

    refused = {BO: answer} if is_final else {}
    problem = f"not to {BO}: {answer}"
    assert posted == Posted(status_code=250, problem=problem, reached=(ANA,), refused=refused, is_final=is_final)
    assert server.received[0].rcpt_tos == [ANA]


def test_an_email_that_nobody_can_get_is_final_only_if_all_are_refused_for_good(
    server: MailServer, settings: SmtpSettings
) -> None:
    server.answers = {ANA: "550 gone", BO: "450 later"}
    mixed = send(MAIL, settings)
    server.answers[BO] = "553 gone, too"
    gone = send(MAIL, settings)

    assert (mixed.status_code, mixed.is_final, mixed.reached, mixed.refused) == (550, False, (), {ANA: "550 gone"})
    assert (gone.problem, gone.is_final) == (f"not to {ANA}: 550 gone; not to {BO}: 553 gone, too", True)
    assert server.received == []


def test_who_was_refused_for_good_is_not_asked_for_again(server: MailServer, settings: SmtpSettings) -> None:
    before = replace(MAIL, refused={ANA: "550 gone"})
    server.answers[ANA] = "550 would be asked for"
    server.answers[BO] = "450 later"
    later = send(before, settings)
    server.answers[BO] = ""
    taken = send(before, settings)

    assert (later.problem, later.refused, later.is_final) == (
        f"not to {ANA}: 550 gone; not to {BO}: 450 later",
        {},
        False,
    )
    assert taken == Posted(status_code=250, problem=f"not to {ANA}: 550 gone", reached=(BO,), is_final=True)
    assert send(replace(before, recipients=(ANA,)), settings) == Posted(
        problem=f"not to {ANA}: 550 gone", is_final=True
    )


def test_who_is_refused_before_the_text_is_is_remembered(server: MailServer, settings: SmtpSettings) -> None:
    server.answers[BO] = "550 gone"
    server.answers_to_texts = ["451 try again"]

    posted = send(MAIL, settings)

    assert (posted.refused, posted.is_final) == ({BO: "550 gone"}, False)


def test_who_is_refused_before_the_connection_breaks_is_remembered() -> None:
    fine = (0.0, b"250 OK\r\n")
    with scripted_mail_server((0.0, b"220 here\r\n"), fine, fine, fine, (0.0, b"550 gone\r\n")) as (port, _):
        posted = send(MAIL, _plain(port, timeout_seconds=5.0))

    assert posted == Posted(problem="the mail server closed the connection", refused={BO: "550 gone"})


@pytest.mark.parametrize(("answer", "is_final"), [("451 try again", False), ("554 5.7.1 spam", True)])
def test_a_text_that_is_refused_is_final_for_good_reasons(
    server: MailServer, settings: SmtpSettings, answer: str, *, is_final: bool
) -> None:
    server.answers_to_texts = [answer]

    posted = send(MAIL, settings)

    assert posted.problem == f"the mail server refuses the email: {answer}"
    assert (posted.status_code, posted.reached, posted.is_final) == (int(answer[:3]), (), is_final)


def test_a_wrong_password_is_told_without_it_and_tried_again(server: MailServer, settings: SmtpSettings) -> None:
    wrong = settings.password_file
    assert wrong is not None
    wrong.write_text("another-password")

    posted = send(MAIL, settings)

    assert posted == Posted(status_code=535, problem="the mail server does not accept the installation's user")
    wrong.unlink()
    assert "TRAINYARD_SMTP_PASSWORD_FILE" in send(MAIL, settings).problem
    assert server.received == []


def test_a_certificate_that_is_not_accepted_keeps_password_and_email_here(
    server: MailServer, settings: SmtpSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")

    assert send(MAIL, settings) == Posted(problem="TLS with the mail server failed: CERTIFICATE_VERIFY_FAILED")
    assert server.received == []


def test_a_server_without_tls_or_sign_in_gets_nothing(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    with mail_server(tmp_path, security="none") as server:
        plain = SmtpSettings(host="127.0.0.1", port=server.port, sender="t@example.org", security="none")

        refused = send(MAIL, replace(plain, security="starttls"))

        assert "does not offer the TLS" in refused.problem
        assert server.received == []
        assert send(MAIL, plain).problem == ""


def test_settings_that_changed_are_heeded(settings: SmtpSettings, server: MailServer) -> None:
    nowhere = send(MAIL, replace(settings, host=""))
    elsewhere = send(MAIL, replace(settings, domains=("other.example",)))

    assert "TRAINYARD_SMTP_HOST" in nowhere.problem
    assert elsewhere.problem == f"TRAINYARD_SMTP_DOMAINS no longer allows emails to {ANA}, {BO}"
    assert not nowhere.is_final
    assert server.received == []


def test_a_server_that_is_away_or_silent_is_told(settings: SmtpSettings) -> None:
    away = send(MAIL, replace(settings, port=free_port()))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        late = send(MAIL, replace(settings, port=silent.getsockname()[1], timeout_seconds=0.3))

    with endless_mail_server(b"2", 0.05) as port:
        dripping = send(MAIL, _plain(port, timeout_seconds=0.3))
    with endless_mail_server(b"220-" + b"x" * 100 + b"\r\n", 0.0) as port:
        flooding = send(MAIL, _plain(port, timeout_seconds=5.0))

    assert dripping == late
    assert flooding.problem == "the mail server says more than an email needs"
    assert away.problem == "the mail server cannot be reached: Connection refused"
    assert late.problem == "the mail server did not answer within 0.3 seconds"


@pytest.mark.parametrize("wrong", [{"host": "smtp..example"}, {"sender": "a..b@example.org"}])
def test_settings_that_the_libraries_refuse_are_told(settings: SmtpSettings, wrong: dict[str, str]) -> None:
    posted = send(MAIL, replace(settings, **wrong))  # type: ignore[arg-type]

    assert posted.problem.startswith("the email cannot be sent with these settings: ")
    assert (posted.status_code, posted.is_final) == (None, False)


# ---- the doctor's check


def test_the_doctor_signs_in_and_sends_nothing(
    server: MailServer, settings: SmtpSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _found(settings) == [
        Finding(level=Level.OK, message=f"127.0.0.1:{server.port} takes emails from trainyard@example.org")
    ]
    assert _found(replace(settings, host="")) == [
        Finding(level=Level.OK, message="none is set: webhooks send no emails")
    ]
    assert server.received == []

    monkeypatch.delenv("SSL_CERT_FILE")
    (untrusted,) = _found(settings)
    assert (untrusted.level, "TRAINYARD_SMTP_HOST must be the name" in untrusted.fix) == (Level.FAILED, True)


@pytest.mark.parametrize(
    ("wrong", "message", "setting"),
    [
        ({"user": "another-user"}, "does not accept the installation's user", "TRAINYARD_SMTP_PASSWORD_FILE"),
        ({"password_file": Path("/nowhere")}, "TRAINYARD_SMTP_PASSWORD_FILE, a file of ASCII text", "mode 0600"),
        ({"security": "tls"}, "TLS with the mail server failed", "TRAINYARD_SMTP_SECURITY"),
        ({"host": "smtp..example"}, "cannot be sent with these settings", "TRAINYARD_SMTP_HOST"),
    ],
)
def test_the_doctor_names_the_setting_that_is_wrong(
    settings: SmtpSettings, wrong: dict[str, Any], message: str, setting: str
) -> None:
    (finding,) = _found(replace(settings, **wrong))

    assert finding.level is Level.FAILED
    assert message in finding.message
    assert setting in finding.fix


def test_the_doctor_tells_a_server_that_is_away_offers_no_tls_or_refuses_the_sender(tmp_path: Path) -> None:
    (away,) = _found(_plain(free_port(), timeout_seconds=5.0))
    with mail_server(tmp_path, security="none") as server:
        (bare,) = _found(replace(_plain(server.port, timeout_seconds=5.0), security="starttls"))
    lines = [(0.0, b"220 here\r\n"), (0.0, b"250 OK\r\n"), (0.0, b"550 not you\r\n")]
    with scripted_mail_server(*lines) as (port, _):
        (sender,) = _found(_plain(port, timeout_seconds=5.0))

    assert [each.level for each in (away, bare, sender)] == [Level.FAILED] * 3
    assert (away.message, "TRAINYARD_SMTP_PORT" in away.fix) == (
        "the mail server cannot be reached: Connection refused",
        True,
    )
    assert "TRAINYARD_SMTP_SECURITY" in bare.fix
    assert sender.message == "it refuses emails from t@example.org: 550 not you"
    assert "TRAINYARD_SMTP_SENDER" in sender.fix


@pytest.mark.parametrize(
    ("offered", "problem"),
    [
        (b"250 SIZE\r\n", "does not offer the TLS or the sign-in"),
        (b"250 AUTH XOAUTH2\r\n", "No suitable authentication"),
    ],
)
def test_the_doctor_tells_a_server_without_a_sign_in_for_the_user(tmp_path: Path, offered: bytes, problem: str) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    with scripted_mail_server((0.0, b"220 here\r\n"), (0.0, b"250-here\r\n" + offered)) as (port, _):
        (finding,) = _found(replace(_plain(port, timeout_seconds=5.0), user=USER, password_file=password))

    assert problem in finding.message
    assert "TRAINYARD_SMTP_USER" in finding.fix


def _found(settings: SmtpSettings) -> list[Finding]:
    return mail.server(Site(replace(load_settings({}), smtp=settings), Database))


def _plain(port: int, *, timeout_seconds: float) -> SmtpSettings:
    return SmtpSettings(
        host="127.0.0.1", port=port, security="none", sender="t@example.org", timeout_seconds=timeout_seconds
    )
