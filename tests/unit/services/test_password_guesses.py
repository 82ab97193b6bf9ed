"""Wrong passwords are counted by address."""

from app.domain.token_bucket import Rate
from app.services.access.password_guesses import Guesses


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_address_with_too_many_wrong_passwords_is_refused_for_a_while() -> None:
    clock = Clock()
    guesses = Guesses(Rate(per_second=0.5, burst=3), clock)

    waits = []
    for _ in range(5):
        waits.append(guesses.seconds_left("192.0.2.1"))
        guesses.note_wrong("192.0.2.1")
    elsewhere = guesses.seconds_left("192.0.2.2")
    clock.now += 2.1
    later = guesses.seconds_left("192.0.2.1")
    for _ in range(2):
        guesses.note_wrong("192.0.2.1")

    assert waits == [0, 0, 0, 0, 2]
    assert (elsewhere, later) == (0, 0)
    assert guesses.seconds_left("192.0.2.1") > 0
