"""The supervisor's loop: what timers can't do, and its end."""

from workers.supervisor.ranks.event_loop import EventLoop


def test_thread_that_calls_after_the_end_is_not_disturbed():
    loop = EventLoop()
    loop.close()

    called: list[bool] = []
    loop.call(lambda: called.append(True))
    loop.wake()

    assert called == []


def test_timer_that_is_set_again_at_once_leaves_time_for_everything_else():
    loop, ran = EventLoop(), list[str]()

    def again():
        assert len(ran) < 100, "the loop never leaves its timers"
        ran.append("timer")
        loop.call_after(0.0, again)

    again()
    loop.call(lambda: ran.append("call"))

    loop.run_until(lambda: len(ran) > 3)

    assert ran[:3] == ["timer", "call", "timer"]
    loop.close()
