"""The attacker comes first and wants to stay: something at /tmp/berth or /var/tmp/berth that berth cannot use, or that the
attacker can delete other users' files in, and that the administrator cannot get rid of by `sudo berth setup`.

Tried: a directory with other things in it, a symbolic link, a FIFO, a file, an archive of the attacker's; all of them in a
mount namespace with a /tmp and a /var/tmp of its own. `setup` and `doctor` must not send the administrator from one to the
other.
"""

import json
import os

import pytest
from conftest import BERTH
from hostile import MALLORY, owner_and_mode

pytestmark = pytest.mark.needs_root

SQUATS = {
    "a directory with other things": "mkdir -m 755 {0}; touch {0}/junk; chown {1} {0} {0}/junk",
    "a link": "ln -s /etc {0}; chown -h {1} {0}",
    "a FIFO": "mkfifo {0}; chown {1} {0}",
    "a file": "touch {0}; chown {1} {0}",
}


class Lab:
    """A host with its own /tmp and /var/tmp, kept by a process in a mount namespace."""

    def __init__(self, server):
        self.server = server
        (server.folder / "etc").mkdir()
        self.env = {**server.env, "BERTH_DIR": None, "BERTH_SIM": None, "BERTH_SIM_STATE": None}
        # The programs stay in reach, wherever they lie; so does the folder of the test.
        script = (f"mount --make-rprivate / && mkdir -p /mnt/build && mount --bind {BERTH.parents[1]} /mnt "
                  f"&& mount -t tmpfs -o mode=1777 none /var/tmp && mount -t tmpfs -o mode=1777 none /tmp "
                  "&& echo ready && exec sleep infinity")
        self.keeper = server.start("unshare", "--mount", "sh", "-c", script)
        assert self.keeper.stdout.readline() == "ready\n"

    def run(self, script):
        return self.server.run("nsenter", "--mount", "--target", self.keeper.pid, "sh", "-c", script, env=self.env)

    def path(self, path):
        return f"/proc/{self.keeper.pid}/root{path}"

    def setup(self, *flags):
        return self.run(f"/mnt/bin/berth setup --tmpfiles-dir /tmp/tmpfiles.d {' '.join(flags)}")

    def doctor(self):
        result = self.run("BERTH_SIM=4x24GiB BERTH_SIM_STATE=/tmp/state BERTH_DIR=/tmp/berth /mnt/bin/berth doctor --json")
        return {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}


@pytest.fixture
def lab(server):
    return Lab(server)


@pytest.mark.parametrize("squat", SQUATS)
@pytest.mark.parametrize("place", ["/tmp/berth", "/var/tmp/berth"])
def test_setup_moves_aside_what_cannot_be_used(lab, squat, place):
    assert lab.run(SQUATS[squat].format(place, MALLORY)).returncode == 0
    before = os.lstat(lab.path(place)).st_ino
    result = lab.setup("--dry-run")
    assert f"'{place}.moved-" in result.stdout and os.lstat(lab.path(place)).st_ino == before, result
    result = lab.setup()
    assert (result.returncode, result.stderr) == (0, ""), result
    assert f"'{place}.moved-" in result.stdout and str(MALLORY) in result.stdout
    for made in ("/tmp/berth", "/var/tmp/berth"):
        assert owner_and_mode(lab.path(made)) == (0, 0o1777)
    folder, name = place.rsplit("/", 1)
    aside = [entry for entry in os.listdir(lab.path(folder)) if entry.startswith(f"{name}.moved-")]
    assert len(aside) == 1 and os.lstat(lab.path(f"{folder}/{aside[0]}")).st_ino == before, "nothing of the user's is deleted"
    result = lab.setup()
    assert result.returncode == 0 and result.stdout.lower().startswith("nothing") and result.stdout.count("\n") == 1
    findings = lab.doctor()
    assert findings["owner"]["level"] == findings["mode"]["level"] == "ok"


def test_setup_takes_over_the_history_of_its_first_owner(lab):
    """With what is in it: the owner of the folder could delete every user's."""
    assert lab.run(f"mkdir -m 1755 /var/tmp/berth && chown {MALLORY} /var/tmp/berth && mkdir /var/tmp/berth/2001 && "
                   "chown 2001 /var/tmp/berth/2001").returncode == 0
    result = lab.setup()
    changes = [line for line in result.stdout.splitlines() if "'/var/tmp/berth'" in line]
    assert any("root" in line and str(MALLORY) in line for line in changes), result
    assert any("1777" in line and "1755" in line for line in changes), result
    assert owner_and_mode(lab.path("/var/tmp/berth")) == (0, 0o1777)
    assert owner_and_mode(lab.path("/var/tmp/berth/2001")) == (2001, 0o755)


def test_a_root_directory_with_other_things_is_left_alone(lab):
    """Only what an ordinary user has put there is moved."""
    assert lab.run("mkdir -m 755 /tmp/berth; touch /tmp/berth/junk").returncode == 0
    result = lab.setup()
    assert result.returncode == 74 and "'/tmp/berth'" in result.stderr and result.stderr.count("\n") == 1
    assert os.listdir(lab.path("/tmp/berth")) == ["junk"]


def test_a_chosen_folder_is_never_moved(server):
    """BERTH_DIR may name a home directory, by a slip of the hand."""
    (server.harbour / "letter").touch()
    os.chown(server.harbour, MALLORY, MALLORY)
    server.harbour.chmod(0o755)
    result = server.berth("setup", "--tmpfiles-dir", server.folder / "tmpfiles.d")
    assert result.returncode == 74 and f"'{server.harbour}'" in result.stderr and "doctor" not in result.stderr
    assert owner_and_mode(server.harbour) == (MALLORY, 0o755)


def test_what_is_planted_in_place_of_the_archive_is_moved(server):
    (server.harbour / "archive").symlink_to("/etc")
    os.chown(server.harbour / "archive", MALLORY, MALLORY, follow_symlinks=False)
    result = server.berth("setup", "--tmpfiles-dir", server.folder / "tmpfiles.d")
    assert result.returncode == 0 and "symbolic link" in result.stdout
    assert owner_and_mode(server.harbour / "archive") == (0, 0o1777)


def test_doctor_sends_nobody_to_delete_what_a_user_has_put_there(server, lab):
    assert lab.run(SQUATS["a link"].format("/tmp/berth", MALLORY)).returncode == 0
    # As with a driver: doctor looks at the default harbour only without a simulated server.
    result = lab.run("/mnt/bin/berth doctor --json")
    finding = {one["check"]: one for one in json.loads(result.stdout)["findings"]}["harbour"]
    assert finding["level"] == "problem" and "sudo berth setup" in finding["remedy"]
