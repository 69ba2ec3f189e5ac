"""berth setup: the harbour becomes root's, leases stay, and systemd-tmpfiles keeps it."""

import json
import os
import re
import shutil
import stat
import subprocess

import pytest
from conftest import assert_one_line_error
from test_doctor import end_all

DAEMON = 1
AS_DAEMON = ["setpriv", "--reuid=1", "--regid=1", "--clear-groups"]


@pytest.fixture(autouse=True)
def no_job_is_left(server):
    yield
    end_all(server)


@pytest.fixture
def tmpfiles(server):
    """Stands for /etc/tmpfiles.d."""
    return server.folder / "tmpfiles.d"


def setup(server, tmpfiles, *flags, **options):
    result = server.berth("setup", "--tmpfiles-dir", tmpfiles, *flags, **options)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout


def owner_and_mode(path):
    about = os.lstat(path)
    return about.st_uid, stat.S_IMODE(about.st_mode)


def lines_of(tmpfiles):
    return [line for line in (tmpfiles / "berth.conf").read_text().splitlines() if not line.startswith("#")]


def assert_nothing_to_do(output):
    assert output.lower().startswith("nothing") and output.count("\n") == 1, output


def lines_for(harbour):
    return [f"d {harbour} 1777 root root -", f"x {harbour}", f"d {harbour}/archive 1777 root root -"]


def test_a_users_harbour_becomes_roots_and_leases_stay(server, tmpfiles, open_build):
    os.chown(server.harbour, DAEMON, DAEMON)
    server.harbour.chmod(0o1755)
    program = open_build / "bin" / "berth"
    job = server.start(*AS_DAEMON, program, "run", "--", "sh", "-c", "echo started; exec sleep 1000")
    assert job.stdout.readline() == "started\n"
    leases = server.status()["gpus"][0]["leases"]
    assert len(leases) == 1 and leases[0]["user"] == "daemon"
    # The archive is not the lease's: its folder appears a second after the start of a job, or by setup.
    files = set(os.listdir(server.harbour)) - {"archive"}
    output = setup(server, tmpfiles)
    assert re.search(f"'{server.harbour}' .*root.*daemon", output)
    assert re.search(f"'{server.harbour}' .*1777.*1755", output)
    assert f"{tmpfiles}/berth.conf" in output
    assert owner_and_mode(server.harbour) == (0, 0o1777)
    assert server.status()["gpus"][0]["leases"] == leases
    assert set(os.listdir(server.harbour)) == files | {"archive"}
    assert owner_and_mode(server.harbour / "archive") == (0, 0o1777)
    assert lines_of(tmpfiles) == lines_for(server.harbour)
    assert_nothing_to_do(setup(server, tmpfiles))


def test_it_is_made_where_there_is_none(server, tmpfiles):
    server.harbour.rmdir()
    assert f"'{server.harbour}' " in setup(server, tmpfiles, preexec_fn=lambda: os.umask(0o077))
    assert owner_and_mode(server.harbour) == (0, 0o1777)
    assert owner_and_mode(tmpfiles) == (0, 0o755) and owner_and_mode(tmpfiles / "berth.conf") == (0, 0o644)
    assert os.listdir(tmpfiles) == ["berth.conf"]


def test_dry_run_changes_nothing(server, tmpfiles, open_build):
    os.chown(server.harbour, DAEMON, DAEMON)
    server.harbour.chmod(0o700)
    output = setup(server, tmpfiles, "--dry-run")
    assert all(line.startswith("would ") for line in output.splitlines())
    for line, words in zip(output.splitlines(), [["root", "daemon"], ["1777", "0700"], ["archive"], ["berth.conf"]], strict=True):
        assert all(word in line for word in words), output
    assert owner_and_mode(server.harbour) == (DAEMON, 0o700) and not tmpfiles.exists()
    missing = {"BERTH_DIR": str(server.folder / "none")}
    assert re.search("^would .*/none'", setup(server, tmpfiles, "--dry-run", env=missing), re.MULTILINE)
    assert not (server.folder / "none").exists()
    # An ordinary user may ask what would change.
    result = server.run(*AS_DAEMON, open_build / "bin" / "berth", "setup", "--dry-run", "--tmpfiles-dir", tmpfiles)
    assert result.returncode == 0 and re.search("^would .*root.*daemon", result.stdout, re.MULTILINE)


def test_only_root(server, tmpfiles, open_build):
    for flags in ([], ["--remove"]):
        result = server.run(*AS_DAEMON, open_build / "bin" / "berth", "setup", "--tmpfiles-dir", tmpfiles, *flags)
        assert_one_line_error(result, 77, "sudo berth setup")


def test_remove_takes_the_lines_away_and_nothing_else(server, tmpfiles):
    setup(server, tmpfiles)
    assert re.match("would .*berth.conf", setup(server, tmpfiles, "--remove", "--dry-run"))
    assert (tmpfiles / "berth.conf").exists()
    output = setup(server, tmpfiles, "--remove")
    assert f"{tmpfiles}/berth.conf" in output and output.count("\n") == 1
    assert os.listdir(tmpfiles) == [] and owner_and_mode(server.harbour) == (0, 0o1777)
    assert_nothing_to_do(setup(server, tmpfiles, "--remove"))


def test_a_simulated_server_needs_none(server, tmpfiles):
    result = server.berth("setup", "--tmpfiles-dir", tmpfiles, env={"BERTH_DIR": None})
    assert_one_line_error(result, 64, "BERTH_SIM", "BERTH_DIR")
    assert_one_line_error(server.berth("setup", "--nope"), 64, "'--nope'")
    assert_one_line_error(server.berth("setup", "--tmpfiles-dir", tmpfiles, env={"BERTH_DIR": "here"}), 74, "BERTH_DIR")
    odd = server.folder / "a\nb"
    odd.mkdir(mode=0o700)
    assert_one_line_error(server.berth("setup", "--tmpfiles-dir", tmpfiles, env={"BERTH_DIR": str(odd)}), 74,
                          "control")
    assert owner_and_mode(odd) == (0, 0o700)
    assert not tmpfiles.exists()


def test_a_symbolic_link_is_refused(server, tmpfiles):
    target = server.folder / "target"
    target.mkdir(mode=0o700)
    os.chown(target, DAEMON, DAEMON)
    server.harbour.rmdir()
    server.harbour.symlink_to(target)
    os.chown(server.harbour, DAEMON, DAEMON, follow_symlinks=False)
    result = server.berth("setup", "--tmpfiles-dir", tmpfiles)
    assert_one_line_error(result, 74, "symbolic link", "daemon")
    assert owner_and_mode(target) == (DAEMON, 0o700) and not tmpfiles.exists()
    server.harbour.unlink()
    server.harbour.touch()
    assert_one_line_error(server.berth("setup", "--tmpfiles-dir", tmpfiles), 74, "directory")


def test_a_folder_for_other_things_is_refused(server, tmpfiles):
    """Such as /etc or somebody's home, by a slip of the hand."""
    home = server.folder / "home"
    home.mkdir(mode=0o755)
    (home / "letter").touch()
    result = server.berth("setup", "--tmpfiles-dir", tmpfiles, env={"BERTH_DIR": str(home)})
    assert_one_line_error(result, 74, f"'{home}'", "BERTH_DIR")
    assert owner_and_mode(home) == (0, 0o755)
    for folder in ("/", "/tmp", "/tmp/.", "/var/tmp"):
        result = server.berth("setup", "--dry-run", "--tmpfiles-dir", tmpfiles, env={"BERTH_DIR": folder})
        assert_one_line_error(result, 74, "BERTH_DIR")


def test_planted_files_are_not_in_the_way(server, tmpfiles):
    os.chown(server.harbour, DAEMON, DAEMON)
    (server.harbour / "junk").touch()
    setup(server, tmpfiles)
    assert owner_and_mode(server.harbour) == (0, 0o1777)


def test_a_configuration_of_somebody_elses_is_left_alone(server, tmpfiles):
    tmpfiles.mkdir()
    (tmpfiles / "berth.conf").write_text("# mine\n")
    for flags in ([], ["--remove"]):
        result = server.berth("setup", "--tmpfiles-dir", tmpfiles, *flags)
        assert_one_line_error(result, 74, f"{tmpfiles}/berth.conf")
    assert (tmpfiles / "berth.conf").read_text() == "# mine\n"
    (tmpfiles / "berth.conf").unlink()
    (tmpfiles / "berth.conf").symlink_to("/dev/null")  # how an administrator masks it
    assert_one_line_error(server.berth("setup", "--tmpfiles-dir", tmpfiles), 74, f"{tmpfiles}/berth.conf")


def test_another_harbour_replaces_the_lines(server, tmpfiles):
    setup(server, tmpfiles)
    other = server.folder / "other"
    setup(server, tmpfiles, env={"BERTH_DIR": str(other)})
    assert lines_of(tmpfiles) == lines_for(other)


def test_drains_of_the_former_owner_are_named(server, tmpfiles):
    os.chown(server.harbour, DAEMON, DAEMON)
    drain = server.harbour / "drain-GPU-1"
    drain.write_text(json.dumps({"version": 1, "gpu": "GPU-1", "reason": "", "since_ms": 1}))
    os.chown(drain, DAEMON, DAEMON)
    assert any("GPU-1" in line and "daemon" in line for line in setup(server, tmpfiles).splitlines())


@pytest.mark.parametrize("name", ["plain", 'od d*[x]%h"q\\\u00e4'])
def test_systemd_tmpfiles_keeps_it(server, tmpfiles, name):
    """The real systemd-tmpfiles, on files of this test alone: it makes and keeps, and cleans the rest."""
    place = server.folder / "place"
    place.mkdir(mode=0o1777)
    harbour = place / name
    setup(server, tmpfiles, env={"BERTH_DIR": str(harbour)})

    def systemd(what, *configurations):
        subprocess.run(["systemd-tmpfiles", what, *map(str, configurations)], check=True, env={"PATH": os.environ["PATH"]})

    (harbour / "lease-abcdefgh").touch()
    (place / "old").touch()
    cleaning = server.folder / "clean.conf"
    cleaning.write_text(f"d {place} 1777 root root 0\n")
    systemd("--clean", cleaning, tmpfiles / "berth.conf")
    assert os.listdir(place) == [name] and sorted(os.listdir(harbour)) == ["archive", "lease-abcdefgh"]
    for line in lines_of(tmpfiles)[:2]:  # each alone
        (server.folder / "one.conf").write_text(line + "\n")
        systemd("--clean", cleaning, server.folder / "one.conf")
        assert os.listdir(place) == [name] and sorted(os.listdir(harbour)) == ["archive", "lease-abcdefgh"], line
    shutil.rmtree(harbour)  # as by a reboot
    systemd("--create", tmpfiles / "berth.conf")
    assert owner_and_mode(harbour) == owner_and_mode(harbour / "archive") == (0, 0o1777)
    (harbour / "lease-abcdefgh").touch()
    systemd("--clean", cleaning)
    assert os.listdir(place) == [], "without the lines it would have been cleaned"
