"""Two hundred detached jobs of three users over eight GPUs, with random kills, cancels, extensions and waits.

BERTH_TEST_SEED=N replays the decisions of a run; BERTH_TEST_JOBS=N makes more of them.
"""

import os
import random

import pytest
from chaos import GIB, history_around
from conftest import SANITIZED
from detached_chaos import DetachedChaos, make_detached_plans
from detached_checks import check_detached
from processes import USERS
from test_chaos import CARDS, MEMORY_MIB, host, server_of  # noqa: F401


@pytest.mark.each_harbour
def test_whatever_is_killed_jobs_tell_the_truth_and_nothing_is_left(host):  # noqa: F811
    seed = os.environ.get("BERTH_TEST_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"BERTH_TEST_SEED={seed}")
    server = server_of(host)
    jobs = int(os.environ.get("BERTH_TEST_JOBS") or (60 if SANITIZED else 200))
    chaos = DetachedChaos(host, make_detached_plans(seed, jobs, USERS[:3], CARDS, MEMORY_MIB))
    lives = chaos.run(deadline_s=240 + jobs)
    assert not host.leases() and not host.tickets() and not host.processes()
    violations = check_detached(server, chaos)
    assert not violations, "\n".join([f"BERTH_TEST_SEED={seed}", *violations, *history_around(server, lives, violations)])
    started = [life for life in lives if life.start is not None]
    killed = [one for one in chaos.submissions.values() if one.berth_killed or one.submitter_killed]
    print(f"{len(started)} of {len(lives)} units ran; {len(killed)} of {jobs} berth processes were killed; "
          f"{sum(len(one.commands) for one in chaos.submissions.values())} commands")
    assert len(started) > jobs / 3 and len(killed) > jobs / 10
    assert host.run("-n", CARDS, "--timeout", "20s")[0] == 0


def test_the_same_seed_makes_the_same_decisions():
    make = [make_detached_plans(seed, 50, USERS, CARDS, 24 * GIB) for seed in ("7", "7", "8")]
    assert make[0] == make[1] != make[2]
