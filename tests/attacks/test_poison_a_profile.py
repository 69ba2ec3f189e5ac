"""The attacker wants another user's job to reserve less memory than it needs, so that its neighbours run out of memory.

They write a profile of the same type into their own folder, which everybody can read: with tiny peaks, with a memory
set by hand, with many runs, with a damaged text. Nothing may be reserved by it: the first run of each user has its GPUs
alone, is measured, and later runs reserve what that needed. They also move a folder of that user, in which all can
write, to where that user's profiles are expected.
"""

import json
import os

import pytest
from conftest import SIM_JOB
from hostile import ALICE, MALLORY, prefix_of
from leasing import jobs  # noqa: F401

pytestmark = pytest.mark.needs_root

AS_ALICE, AS_MALLORY = prefix_of(ALICE), prefix_of(MALLORY)
AUTO = ["--mem", "auto", "--job", "train"]


def run(peak, **more):
    return {"ended_ms": 1, "peak": peak, "lasted_ms": 1000, **more}


POISONS = {
    "a memory set by hand": {"set_memory": 1, "runs": []},
    "a run of one byte": {"runs": [run(1)]},
    "fifty runs of one byte": {"runs": [run(1)] * 50},
    "a run and a memory set by hand": {"set_memory": 1, "set_time_ms": 1, "runs": [run(5 << 30)]},
    "failures, which end the measuring of one's own type": {"failures": 50, "runs": [run(1)]},
    "more than any GPU has": {"runs": [run(1 << 50)]},
}


def leases(server):
    return [lease for gpu in server.status()["gpus"] for lease in gpu["leases"]]


def plant(server, program, content):
    """Mallory has learned the type, and then changed the file."""
    result = server.run(*AS_MALLORY, program, "run", *AUTO, "--", program.parent / "berth-sim-job", "--quiet", "--mem", "5GiB",
                        "--samples", "5")
    assert (result.returncode, result.stderr) == (0, "")
    [path] = (server.harbour / "archive" / str(MALLORY)).glob("profile-*.json")
    path.write_text(json.dumps({"type": "train", "command": "train", "failures": 0, **content}))


@pytest.mark.parametrize("name", POISONS)
def test_the_first_run_has_its_gpu_alone(server, jobs, open_build, name):  # noqa: F811
    program = open_build / "bin" / "berth"
    plant(server, program, POISONS[name])
    jobs.hold(*AUTO, prefix=AS_ALICE, program=program)
    [lease] = leases(server)
    assert lease["memory_mib"] is None, "the whole GPU"


def test_what_is_reserved_then_is_what_the_own_run_needed(server, jobs, open_build):  # noqa: F811
    program = open_build / "bin" / "berth"
    plant(server, program, POISONS["fifty runs of one byte"])
    result = server.run(*AS_ALICE, program, "run", *AUTO, "--", program.parent / "berth-sim-job", "--quiet", "--mem", "5GiB",
                        "--samples", "5")
    assert (result.returncode, result.stderr) == (0, "")
    jobs.hold(*AUTO, prefix=AS_ALICE, program=program)
    [lease] = leases(server)
    assert lease["memory_mib"] == pytest.approx(5 * 1024 * 1.1, abs=2)


def test_it_is_shown_as_a_hint_without_what_was_set_by_hand(server, open_build):
    program = open_build / "bin" / "berth"
    result = server.run(*AS_MALLORY, program, "run", "--mem", "auto", "--", program.parent / "berth-sim-job", "--quiet", "--mem",
                        "5GiB", "--samples", "5")
    assert (result.returncode, result.stderr) == (0, "")
    [path] = (server.harbour / "archive" / str(MALLORY)).glob("profile-*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "set_memory": 1}))
    said = server.run(*AS_ALICE, program, "profile", "of", "--", program.parent / "berth-sim-job").stdout
    assert "measured" in said and "5.5 GiB" in said, said
    assert SIM_JOB.name in said


def test_a_folder_that_others_can_write_in_is_not_a_users_own(server, jobs, open_build):  # noqa: F811
    """Mallory moves a folder of Alice's to Alice's name in the archive, and writes a profile into it."""
    program = open_build / "bin" / "berth"
    plant(server, program, {"set_memory": 1, "runs": []})
    [profile] = (server.harbour / "archive" / str(MALLORY)).glob("profile-*.json")
    shared = server.harbour / "archive" / str(ALICE)
    shared.mkdir()
    (shared / profile.name).write_text(profile.read_text())
    os.chown(shared, ALICE, ALICE)
    shared.chmod(0o777)
    jobs.hold(*AUTO, prefix=AS_ALICE, program=program)
    [lease] = leases(server)
    assert lease["memory_mib"] is None, "the whole GPU"
