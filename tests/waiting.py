"""How long the tests wait, and waiting for a condition. These are the only time limits of tests that expect a success.

BERTH_TEST_PATIENCE multiplies the limit, for machines that are slower than these tests expect.
"""

import os
import time

# For anything that must happen: seconds. It ends a test that would hang; it does not measure speed.
LIMIT = round(120 * float(os.environ.get("BERTH_TEST_PATIENCE") or 1))
# The same for a test of several steps: a whole document, a compiler, a demonstration.
LONG_LIMIT = 5 * LIMIT
# Seconds between the audits by which a waiting client, a job's parent and a keeper find out what no ring told them. Longer than
# any test, so that an audit cannot hide a lost ring; Server.env passes it to berth. A test of the audit sets a short one.
NO_AUDIT_S = 24 * 3600
SHORT_AUDIT_S = 2


def wait_until(condition, what="", seconds=LIMIT):
    """Calls `condition()` until it returns a true value, and returns that value. Fails after `seconds`. `what` is a text, or a
    function that returns the text."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not in {seconds} s: {what() if callable(what) else what or condition}"
        time.sleep(0.01)
