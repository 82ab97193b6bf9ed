"""Notes about connections: at once, then less and less often, and few in all."""

from workers.egress import connection_notes
from workers.egress.connection_notes import ConnectionNote, ConnectionNotes
from workers.egress.gate import EgressConnection


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def ended(notes: ConnectionNotes, host: str = "a", *, sent: int = 1, received: int = 2, refused: str = "") -> None:
    notes.add(EgressConnection(host, 443, refused, sent, received), has_ended=True)


def test_first_connection_is_noted_at_once_and_later_ones_are_summed_up():
    clock = Clock()
    notes = ConnectionNotes(clock)

    ended(notes)
    first = notes.take()
    for _ in range(5):
        ended(notes)
    early = notes.take()
    clock.now += 61
    later = notes.take()
    ended(notes)
    clock.now += 61
    waiting = notes.take()
    rest = notes.take(everything=True)

    assert first == [ConnectionNote("a", 443, "", 1, 1, 2)]
    assert later == [ConnectionNote("a", 443, "", 5, 5, 10)]
    assert (early, waiting) == ([], [])
    assert rest == [ConnectionNote("a", 443, "", 1, 1, 2)]


def test_bytes_of_an_open_connection_are_counted_once():
    clock = Clock()
    notes, connection = ConnectionNotes(clock), EgressConnection("a", 443)

    notes.add(connection, has_ended=False)
    first = notes.take()
    connection.sent, connection.received = 10, 20
    notes.add(connection, has_ended=False)
    clock.now += 61
    later = notes.take()
    connection.sent = 15
    notes.add(connection, has_ended=True)
    last = notes.take(everything=True)

    assert [(each.connections, each.sent_bytes, each.received_bytes) for each in (*first, *later, *last)] == [
        (1, 0, 0),
        (0, 10, 20),
        (0, 5, 0),
    ]


def test_scan_makes_few_notes(monkeypatch):
    monkeypatch.setattr(connection_notes, "MOST_SERVICES", 3)
    notes = ConnectionNotes(Clock())

    for number in range(10):
        ended(notes, f"host-{number}", refused="it is not in the list", sent=0, received=0)
    ended(notes, "allowed")

    assert [(each.host, each.refused, each.connections) for each in notes.take()] == [
        ("host-0", "it is not in the list", 1),
        ("host-1", "it is not in the list", 1),
        ("host-2", "it is not in the list", 1),
        ("other hosts", "refused", 7),
        ("other hosts", "", 1),
    ]
