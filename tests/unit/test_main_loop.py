"""The supervisor's loop at its end."""

from workers.main_loop import MainLoop


def test_thread_that_calls_after_the_end_is_not_disturbed():
    loop = MainLoop()
    loop.close()

    loop.call(lambda: None)
    loop.wake()
