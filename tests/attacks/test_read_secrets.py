"""The attacker wants the secrets in another user's command line (tokens, passwords).

They read everything that berth publishes: the harbour's files, the history, the profiles, `status`, `queue`, `log`,
`profile`, and the page. `ps` does not show the command where /proc is mounted with hidepid, so berth must not either.
Where `ps` shows it, it does so only while the job runs: what lasts (the type of the job) must not contain the secret.
"""

import json
import pathlib

import pytest
from hostile import ALICE, prefix_of
from leasing import NOBODY, eventually, jobs  # noqa: F401
from serving import serve  # noqa: F401

pytestmark = pytest.mark.needs_root

SECRET = "hunter2-Xq7Z"
AS_ALICE = prefix_of(ALICE)
# The shell script of a job that says that it runs, and ends with the test.
STAY = 'echo x; read -r line; exit 0'


def hidden_proc(option="hidepid=2"):
    """The words before a command that gives it a /proc of its own with this option."""
    return ["unshare", "-m", "sh", "-c", f'mount -t proc -o {option} proc /proc && exec "$@"', "sh"]


def published(server):
    """Every text that another user can read: the files of harbour and archive, and what the commands print."""
    texts = {}
    for path in pathlib.Path(server.harbour).rglob("*"):
        if path.is_file():
            texts[str(path)] = path.read_text(errors="replace")
    for words in (["status"], ["queue"], ["log"], ["profile", "--all"], ["report"]):
        texts[" ".join(words)] = server.berth(*words, "--json", env={"COLUMNS": "500"}).stdout
    return texts


def assert_secret(server):
    for place, text in published(server).items():
        assert SECRET not in text, (place, text[:2000])


def run_to_end(server, program, *command, prefix=(), env=None):
    """A run that is recorded in the history, and teaches a profile (by failing, if not otherwise)."""
    result = server.run(*prefix, program, "run", "--mem", "auto", "--", *command, env=env)
    assert "berth:" not in result.stderr, result.stderr
    return result


@pytest.fixture
def docker(server):
    """A `docker` that does nothing: what is published depends on the words."""
    folder = server.folder / "tools"
    folder.mkdir()
    (folder / "docker").write_text(f"#!/bin/sh\n{STAY}\n")
    (folder / "docker").chmod(0o755)
    server.env["PATH"] = f"{folder}:{server.env['PATH']}"
    return "docker"


@pytest.mark.parametrize("option", ["hidepid=1", "hidepid=2", "hidepid=ptraceable"])
@pytest.mark.parametrize("prefix", [AS_ALICE, []], ids=["user", "root"])
def test_a_command_that_ps_hides(server, serve, jobs, docker, open_build, option, prefix):  # noqa: F811
    """Also root's: root itself sees all processes, and others still do not see root's."""
    program = open_build / "bin" / "berth"
    where = [*hidden_proc(option), *prefix]
    command = [docker, "run", "image", f"--login={SECRET}", SECRET]
    jobs.hold("--mem", "auto", command=command, prefix=where, program=program)
    jobs.hold(command=["sh", "-c", f": {SECRET}; {STAY}"], prefix=where, program=program)
    jobs.hold("-n", "2", prefix=where, program=program)
    waiter = jobs.wait("--mem", "auto", command=command, prefix=where, program=program)
    assert_secret(server)
    page = serve()
    for path in ("status", "queue", "log"):
        assert SECRET not in page.get(f"/api/v1/{path}").body.decode(), path
    waiter.process.kill()
    for job in jobs.all[:-1]:
        assert job.end() == 0
    run_to_end(server, program, "python3", "-c", f"import os; '{SECRET}'", prefix=where)
    assert_secret(server)


def test_a_hidden_command_still_learns(server, open_build):
    """The same command has the same type, and another one has another."""
    program = open_build / "bin" / "berth"
    for name in ("train.py", "train.py", "other.py"):
        script = server.folder / f"{SECRET}-{name}"
        script.write_text("pass")
        run_to_end(server, program, "python3", script, prefix=[*hidden_proc(), *AS_ALICE])
    types = [json.loads(line)["type"] for line in server.berth("profile", "--all", "--json").stdout.splitlines()]
    assert len(types) == 2 and all(one.startswith("python #") for one in types), types
    assert_secret(server)


@pytest.mark.parametrize("words", [["-e", f"TOKEN={SECRET}"], [f"-eTOKEN={SECRET}"], ["--env", f"TOKEN={SECRET}"],
                                   [f"--env=TOKEN={SECRET}"], ["--password", SECRET], [f"TOKEN={SECRET}"],
                                   [f"https://me:{SECRET}@host/x"], [f"--from=redis://:{SECRET}@host/0"]])
def test_a_secret_is_not_part_of_a_type(server, jobs, docker, words):  # noqa: F811
    """What every user sees in `ps` while the job runs is gone from what lasts, but for the command in the history."""
    jobs.hold("--mem", "auto", command=[docker, "run", *words, "image"])
    [lease] = server.status()["gpus"][0]["leases"]
    assert SECRET in lease["command"], "as `ps` shows it"
    assert lease["job"].startswith("docker run ") and lease["job"].endswith("image"), lease["job"]
    assert SECRET not in lease["job"]


@pytest.mark.parametrize("how", ["variable", "file"])
def test_a_switch_keeps_commands_out(server, jobs, docker, how):  # noqa: F811
    """For a user, or by the administrator for everybody, where `ps` hides nothing."""
    env = {"BERTH_COMMANDS": "hidden"}
    if how == "file":
        site = server.folder / "berth.toml"
        site.write_text('commands = "hidden"\n')
        env = {"BERTH_SITE_FILE": str(site)}
    jobs.hold("--mem", "auto", command=[docker, "run", "image", SECRET], env=env)
    assert_secret(server)
    [lease] = server.status()["gpus"][0]["leases"]
    assert lease["command"] == "docker" and lease["job"].startswith("docker #"), lease


def test_a_wrong_switch_is_refused(server):
    result = server.berth("run", "--", "true", env={"BERTH_COMMANDS": "no"})
    assert result.returncode == 64 and "hidden" in result.stderr and "shown" in result.stderr
