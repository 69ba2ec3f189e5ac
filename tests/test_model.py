"""The protocol as a model (docs/model): spin finds no error in it, and one in each variant with a rule taken out."""

import re
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "docs" / "model"))
import check  # noqa: E402

pytestmark = pytest.mark.release_only

# Three clients and two GPUs, unless it says otherwise. ./dev model checks all faults together, in some minutes.
TWO_CLIENTS = ("CLIENTS=2", "STOPS=0")
HOSTILE = ("USERS=1", "STOPS=0")
ONE_GPU = ("GPUS=1", *HOSTILE)
STOP = ("USERS=1", "HOSTILE=0", "STOPS=1")
# One watcher for each user instead of two: what needs four clients otherwise is seen with three.
ONE_WATCHER = ("NEAR=1", "USERS=1", "HOSTILE=0", "STOPS=0")
ONE_WATCHER_HOSTILE = ("NEAR=1", *HOSTILE)
OTHER_USERS_STOP = ("GPUS=1", "USERS=2", "STOPS=1", "HOSTILE=0")
OLD_SNAPSHOTS = ("OLD_SNAPSHOTS=1", *ONE_WATCHER_HOSTILE)

CONFIGURATIONS = {
    "hostile tickets": HOSTILE,
    "a stop": STOP,
    "one watcher": ONE_WATCHER,
    "one watcher, hostile tickets": ONE_WATCHER_HOSTILE,
    "four clients, one GPU": ("CLIENTS=4", *ONE_GPU),
    "odd lease files": (*TWO_CLIENTS, "ODD"),
    "a lease within another": (*TWO_CLIENTS, "NESTED"),
    "planted files": (*TWO_CLIENTS, "PLANTED"),
    "old snapshots": OLD_SNAPSHOTS,
}

DOUBLE_GRANT = "lease[i]&taken"
WAITS_TOO_LONG = "waits[u]<="
WRONG_ORDER = "could& ~(won)"
BROKEN_RULES = {
    "TRUST_THE_RECORDS_UID": ((*TWO_CLIENTS, "ODD"), DOUBLE_GRANT),
    "IGNORE_UNREADABLE_LEASE": ((*TWO_CLIENTS, "ODD"), DOUBLE_GRANT),
    "ANYBODY_MAY_END": ((*TWO_CLIENTS, "ODD"), DOUBLE_GRANT),
    "DENIED_BELL_IS_DEAD": ((*TWO_CLIENTS, "ODD"), DOUBLE_GRANT),
    "FORGET_WHAT_CANNOT_BE_WATCHED": ((*TWO_CLIENTS, "ODD"), WAITS_TOO_LONG),
    "ANY_OUTER_LEASE": ((*TWO_CLIENTS, "NESTED"), DOUBLE_GRANT),
    "EXISTENCE_COUNTS": ((*TWO_CLIENTS, "PLANTED"), "planted[u]"),
    "GIVE_UP_A_TAKEN_NAME": ((*TWO_CLIENTS, "PLANTED"), WAITS_TOO_LONG),
    "COUNT_DEAD_BELLS": (ONE_GPU, WAITS_TOO_LONG),
    "TRUST_THE_NUMBER": (ONE_GPU, "ticket[queue[j]]"),
    "NEVER_PASS_OVER": (ONE_GPU, WAITS_TOO_LONG),
    "NO_RANK": (ONE_GPU, WRONG_ORDER),
    "NO_TIME_FOR_NEXT": (ONE_GPU, WRONG_ORDER),
    "TRUST_OTHERS_TO_WATCH": (ONE_GPU, WAITS_TOO_LONG),
    "RELY_ON_ONE_TICKET": (("GPUS=1", "USERS=1", "STOPS=1"), WAITS_TOO_LONG),
    "NO_RESERVATION": (ONE_WATCHER, "reserver==u"),
    "NO_RING_TO_WATCHERS": (ONE_WATCHER, WAITS_TOO_LONG),
    "NO_RING_TO_WINNERS": (ONE_WATCHER, WAITS_TOO_LONG),
    "NO_RING_BEHIND": (ONE_WATCHER, WAITS_TOO_LONG),
    "COMMIT_BEFORE_RING": (ONE_WATCHER, WAITS_TOO_LONG),
    "NO_WATCH_OF_PREDECESSOR": (ONE_WATCHER, WAITS_TOO_LONG),
    "NO_WATCH_OF_RESERVER": (ONE_WATCHER_HOSTILE, WAITS_TOO_LONG),
    "NO_WATCH_OF_SILENT": (ONE_WATCHER_HOSTILE, WAITS_TOO_LONG),
    "CHAIN_THROUGH_OTHER_USERS": (ONE_WATCHER_HOSTILE, WAITS_TOO_LONG),
    "FORGET_THE_OVERTAKEN": (HOSTILE, WAITS_TOO_LONG),
    "NO_RING_TO_HOPEFUL": (ONE_WATCHER_HOSTILE, WAITS_TOO_LONG),
    "WATCH_ONE_PREDECESSOR": (STOP, WAITS_TOO_LONG),
    "NO_RING_TO_STOPPED": (STOP, WAITS_TOO_LONG),
    "NEVER_TELL_THE_SECOND": (STOP, WAITS_TOO_LONG),
    "FORGET_THE_WITHHELD_GRANT": (OLD_SNAPSHOTS, WAITS_TOO_LONG),
}
ENDLESS_RINGING = "RING_WITHOUT_END"


@pytest.mark.parametrize("switches", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_the_protocol_has_no_error(tmp_path, switches):
    outcome = check.check(tmp_path, *switches)
    assert (outcome.finished, outcome.error) == (True, ""), outcome.steps or outcome.report
    assert outcome.states > 1000


def test_clients_do_not_ring_each_other_without_end(tmp_path):
    outcome = check.check(tmp_path, *OTHER_USERS_STOP, progress=True)
    assert (outcome.finished, outcome.error) == (True, ""), outcome.steps or outcome.report


@pytest.mark.parametrize("rule", BROKEN_RULES)
def test_a_protocol_without_one_rule_has_an_error(tmp_path, rule):
    switches, violated = BROKEN_RULES[rule]
    # An error is found after few states: to compile the checker takes longer than to run it.
    outcome = check.check(tmp_path, *switches, f"BROKEN_{rule}", optimize="-O0")
    assert violated in outcome.error, outcome.report
    assert "client 0" in outcome.steps


def test_a_ring_in_every_decision_is_found(tmp_path):
    outcome = check.check(tmp_path, *OTHER_USERS_STOP, f"BROKEN_{ENDLESS_RINGING}", progress=True)
    assert "non-progress cycle" in outcome.error, outcome.report


def test_every_rule_that_can_be_taken_out_is():
    switches = set(re.findall(r"\bBROKEN_([A-Z_]+[A-Z])\b", check.MODEL.read_text()))
    assert switches == {*BROKEN_RULES, ENDLESS_RINGING}


def test_every_rule_is_in_the_table():
    named = set(re.findall(r"\[R(\d+)\]", check.MODEL.read_text()))
    table = re.findall(r"^\| R(\d+) \|", (check.MODEL.parent / "README.md").read_text(), re.MULTILINE)
    assert sorted(table, key=int) == sorted(named, key=int)
