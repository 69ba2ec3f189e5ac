"""Waiting for a condition, for all that the tests start."""

import time


def wait_until(condition, what="", seconds=30):
    """Asks again and again until `condition()` is true, and gives what it returned: the time is a limit and no pace.
    `what` is a text, or gives one when it is needed."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not in {seconds} s: {what() if callable(what) else what or condition}"
        time.sleep(0.01)
