"""The supervisor's loop at its end."""

from workers.supervisor.ranks.event_loop import EventLoop


def test_thread_that_calls_after_the_end_is_not_disturbed():
    loop = EventLoop()
    loop.close()

    called: list[bool] = []
    loop.call(lambda: called.append(True))
    loop.wake()

    assert called == []
