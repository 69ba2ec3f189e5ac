"""The attacker wants other users not to see a lease: an access control list on the harbour makes the bells and records of
others unreadable for some users, while every mode looks right.

Tried: a default list, which new files inherit, and an access list, both by the first owner of the harbour. The opposite,
too: a list on the attacker's own bell, so that a lease without any process looks alive to chosen users.
"""

import json
import os
import subprocess

import pytest
from conftest import assert_one_line_error
from hostile import ALICE, MALLORY, prefix_of
from users import BOB, bell, put, record, world  # noqa: F401

pytestmark = pytest.mark.needs_root

LISTS = {"default": ["-d", "-m", f"u:{ALICE}:---"], "access": ["-m", f"u:{ALICE}:---"]}


@pytest.mark.parametrize("kind", LISTS)
def test_a_harbour_with_an_access_control_list_is_refused(server, open_build, kind):
    os.chown(server.harbour, MALLORY, MALLORY)
    subprocess.run(["setfacl", *LISTS[kind], server.harbour], check=True)
    program = open_build / "bin" / "berth"
    for uid, command in ((MALLORY, ["run", "--", "true"]), (MALLORY, ["status"]), (0, ["run", "--", "true"])):
        result = server.run(*prefix_of(uid), program, *command)
        assert_one_line_error(result, 74, "access control", str(MALLORY), "setfacl -bk")
    findings = {one["check"]: one for one in json.loads(server.berth("doctor", "--json").stdout)["findings"]}
    assert findings["acl"]["level"] == "problem" and "berth setup" in findings["acl"]["remedy"]
    assert server.berth("setup", "--tmpfiles-dir", server.folder / "tmpfiles.d").returncode == 0
    assert os.listxattr(server.harbour) == []
    assert server.run(*prefix_of(ALICE), program, "run", "--", "true").returncode == 0
    findings = {one["check"]: one for one in json.loads(server.berth("doctor", "--json").stdout)["findings"]}
    assert (findings["acl"]["level"], findings["acl"]["remedy"]) == ("ok", None)


def test_the_remedy_works(server):
    subprocess.run(["setfacl", *LISTS["default"], *LISTS["access"], server.harbour], check=True)
    subprocess.run(["setfacl", "-bk", server.harbour], check=True)
    assert os.listxattr(server.harbour) == []


def leave_lease(harbour, uuid):
    bell(harbour, "mmmmmmmm")
    put(f"{harbour}/lease-mmmmmmmm", record("mmmmmmmm", MALLORY, [uuid]))
    subprocess.run(["setfacl", "-m", f"u:{BOB}:---,m::-w-", f"{harbour}/bell-mmmmmmmm"], check=True)


def test_a_list_on_a_bell_does_not_keep_a_dead_lease_alive(world):  # noqa: F811
    world.do(MALLORY, leave_lease, world.harbour, world.uuid())
    assert world.try_now(BOB).returncode == 0
