"""Goal of the attacker: another user runs the attacker's program, or loads the attacker's library.

Berth finds some files through the location of its own files: the Python package its `berth` command, the command its
simulated driver, and `berth compat` a Python and the package. Mallory may create files in a shared folder, below which
Alice has vendored Berth. Tried: a `bin/berth` where four folders up from the package happens to be, beside the package,
and beside its parent; a `berth` in the PATH; a `lib/sim` and `lib/berth/sim`; a `python3` and a package for
`berth compat`.
"""

import os
import shutil
import subprocess

import pytest
from conftest import BUILD
from hostile import ALICE, MALLORY
from waiting import LIMIT

pytestmark = [pytest.mark.needs_root, pytest.mark.release_only]

PYTHON = "/usr/bin/python3"


def give(path, uid, gid=None):
    """The tree belongs to that user, and other users can read it alone."""
    for entry in [path, *path.rglob("*")]:
        os.chown(entry, uid, uid if gid is None else gid, follow_symlinks=False)
        if not entry.is_symlink():
            entry.chmod(0o755 if entry.is_dir() or os.access(entry, os.X_OK) else 0o644)


@pytest.fixture
def shared(open_folder):
    """A sticky folder in which every user may create files, such as /tmp."""
    yield open_folder


class Plot:
    """Mallory's program, which leaves a mark if another user runs it."""

    def __init__(self, folder):
        self.mark = folder / "mark"

    def plant(self, path, give_from=None):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nid -u >>{self.mark}\necho berth\n")
        path.chmod(0o755)
        give(give_from or path.parent, MALLORY)

    def has_worked(self):
        return self.mark.exists()


@pytest.fixture
def plot(shared):
    return Plot(shared)


def vendor(folder, uid=ALICE):
    """A copy of the Python package in that folder, which belongs to the user; the folder as well if it is made."""
    made = next((part for part in [*reversed(folder.parents), folder] if not part.exists()), folder / "berth")
    shutil.copytree(BUILD / "python" / "berth", folder / "berth")
    give(made, uid)
    return folder


def as_alice(*command, **env):
    return subprocess.run([str(part) for part in command], user=ALICE, group=ALICE, extra_groups=[], cwd="/",
                          env={"PATH": os.environ["PATH"], **{name: str(value) for name, value in env.items()}},
                          capture_output=True, text=True, timeout=LIMIT)


def ask_package(packages, **env):
    return as_alice(PYTHON, "-c", "import berth; print(berth.program())", PYTHONPATH=packages, **env)


def assert_refuses(result, *words):
    assert result.returncode == 1 and result.stdout == "", result
    last = result.stderr.splitlines()[-1]
    assert "NoDriver" in last and all(word in last for word in words), last


@pytest.mark.parametrize("place, planted", [
    ("project/app/vendor", "bin/berth"),  # four folders up from the package
    ("lib/app/site-packages", "bin/berth"),  # the same, and nearly named as a prefix is
    (".", "bin/berth"),  # as pip install --target has it
    ("python", "bin/berth"),  # as a build tree has it
], ids=["vendored", "like-a-prefix", "target", "build-tree"])
def test_a_planted_command_is_not_run(shared, plot, place, planted):
    packages = vendor(shared / place)
    plot.plant(shared / planted)
    result = ask_package(packages, BERTH_SIM="2x24GiB", BERTH_DIR=shared / "harbour")
    assert_refuses(result, *(["2003"] if place in (".", "python") else []))
    as_alice(PYTHON, "-c", "import berth; berth.status()", PYTHONPATH=packages, BERTH_SIM="2x24GiB")
    assert not plot.has_worked()


def test_a_command_in_another_users_lib_is_not_run(shared, plot):
    """The layout of a prefix, every folder above the package Mallory's: then the package is Mallory's too. But a folder
    bin that only Mallory owns is not."""
    packages = vendor(shared / "lib" / "python3.11" / "site-packages")
    plot.plant(shared / "bin" / "berth")
    assert_refuses(ask_package(packages), "2003")
    assert not plot.has_worked()


def test_a_command_that_others_could_have_replaced_is_not_run(shared):
    """It is Alice's, in a folder of Alice's that everybody may write to, or writable itself."""
    packages = vendor(shared / "venv" / "lib" / "python3.11" / "site-packages")
    programs = shared / "venv" / "bin"
    shutil.copytree(BUILD / "bin", programs, symlinks=True)
    give(programs, ALICE)
    assert ask_package(packages).stdout == f"{programs}/berth\n"
    programs.chmod(0o777)
    assert_refuses(ask_package(packages), f"'{programs}'")
    programs.chmod(0o755)
    (programs / "berth").chmod(0o775)
    os.chown(programs / "berth", ALICE, MALLORY)
    assert_refuses(ask_package(packages), f"'{programs}/berth'", "2003")


def test_a_command_of_the_path_is_not_run(shared, plot):
    packages = vendor(shared / "project" / "vendor")
    plot.plant(shared / "tools" / "berth")
    assert_refuses(ask_package(packages, PATH=f"{shared}/tools:{os.environ['PATH']}"))
    assert not plot.has_worked()


@pytest.mark.parametrize("packages, programs", [
    ("venv/lib/python3.11/site-packages", "venv/bin"),
    ("venv/lib64/pypy3.10/site-packages", "venv/bin"),
    ("usr/lib/python3/dist-packages", "usr/bin"),
    ("target", "target/bin"),
    ("tree/python", "tree/bin"),
], ids=["wheel", "pypy", "distribution", "target", "build-tree"])
@pytest.mark.parametrize("owner", [0, ALICE], ids=["root", "alice"])
def test_the_layouts_that_are_accepted(shared, packages, programs, owner):
    vendor(shared / packages, owner)
    shutil.copytree(BUILD / "bin", shared / programs, symlinks=True, dirs_exist_ok=True)
    give(shared / packages.split("/")[0], owner)
    result = ask_package(shared / packages)
    assert (result.stdout, result.stderr) == (f"{shared / programs}/berth\n", "")


def link_files(folder, target):
    """A copy of the tree whose files are links, as `uv pip install --link-mode=symlink` makes it."""
    for entry in target.rglob("*"):
        place = folder / entry.relative_to(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not entry.is_dir():
            place.symlink_to(entry)


def link_folder(folder, target):
    """A link to the whole tree, as an editable installation or GNU Stow makes it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(target)


@pytest.mark.parametrize("link", [link_files, link_folder])
@pytest.mark.parametrize("owner", [0, ALICE], ids=["root", "alice"])
def test_an_installation_of_links_is_accepted(shared, link, owner):
    """The package is elsewhere, and the command beside the links."""
    store = vendor(shared / "cache" / "archive" / "7Xq", owner)
    packages = shared / "venv" / "lib" / "python3.11" / "site-packages"
    link(packages / "berth", store / "berth")
    shutil.copytree(BUILD / "bin", shared / "venv" / "bin", symlinks=True)
    give(shared / "venv", owner)
    result = ask_package(packages)
    assert (result.stdout, result.stderr) == (f"{shared}/venv/bin/berth\n", "")


@pytest.mark.parametrize("link", [link_files, link_folder])
def test_a_planted_command_beside_links_is_not_run(shared, plot, link):
    """Alice's links are below a folder in which every user may create files."""
    store = vendor(shared / "cache" / "archive" / "7Xq")
    packages = shared / "lib" / "python3.11" / "site-packages"
    link(packages / "berth", store / "berth")
    give(shared / "lib", ALICE)
    plot.plant(shared / "bin" / "berth")
    assert_refuses(ask_package(packages), "2003")
    assert not plot.has_worked()


def test_a_planted_link_to_a_command_is_not_run(shared):
    """The link is Mallory's, who can change it at any time; the folder to which it leads now is root's."""
    packages = vendor(shared / "lib" / "python3.11" / "site-packages")
    programs = shared / "programs"
    shutil.copytree(BUILD / "bin", programs, symlinks=True)
    give(programs, 0)
    (shared / "bin").symlink_to(programs)
    os.chown(shared / "bin", MALLORY, MALLORY, follow_symlinks=False)
    assert_refuses(ask_package(packages), "2003")
    os.chown(shared / "bin", ALICE, ALICE, follow_symlinks=False)
    assert ask_package(packages).stdout == f"{shared}/bin/berth\n"


def test_a_prefix_of_a_group_is_accepted(shared):
    """Such as /usr/local of Debian, which belongs to root and is writable by the group staff."""
    packages = vendor(shared / "local" / "lib" / "python3.11" / "dist-packages", 0)
    shutil.copytree(BUILD / "bin", shared / "local" / "bin", symlinks=True)
    give(shared / "local" / "bin", 0)
    for folder in (packages, packages.parent, shared / "local" / "bin"):
        os.chown(folder, 0, 50)
        folder.chmod(0o2775)
    result = ask_package(packages)
    assert (result.stdout, result.stderr) == (f"{shared}/local/bin/berth\n", "")


@pytest.fixture
def tools(shared):
    """Alice's copy of the command in a folder of its own, below the shared one: its prefix is the shared folder."""
    folder = shared / "tools"
    folder.mkdir()
    shutil.copy(BUILD / "bin" / "berth", folder / "berth")
    give(folder, ALICE)
    return folder


@pytest.mark.parametrize("place", ["lib/sim", "lib/berth/sim"])
def test_a_planted_simulated_driver_is_not_loaded(shared, tools, place):
    """Mallory's copy of the genuine library, since the test would not survive another one."""
    shutil.copytree(BUILD / "lib" / "sim", shared / place, symlinks=True)
    give(shared / "lib", MALLORY)
    env = {"BERTH_SIM": "2x24GiB", "BERTH_SIM_STATE": shared / "state", "BERTH_DIR": shared / "harbour"}
    result = as_alice(tools / "berth", "status", **env)
    assert (result.returncode, result.stdout) == (69, "")
    assert result.stderr.count("\n") == 1 and "2003" in result.stderr
    assert not (shared / "state").exists()
    give(shared / "lib", 0)
    assert as_alice(tools / "berth", "status", **env).returncode == 0


def test_a_planted_python_does_not_run_compat(shared, plot):
    """berth itself lies in the shared folder, and Mallory's python3 beside it."""
    shutil.copy(BUILD / "bin" / "berth", shared / "berth")
    give(shared / "berth", ALICE)
    plot.plant(shared / "python3", shared / "python3")
    as_alice(shared / "berth", "compat", "gpuselect", "--help")
    assert not plot.has_worked()


def test_a_planted_package_does_not_run_in_compat(shared, tools, plot):
    package = shared / "python" / "berth"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"open({str(plot.mark)!r}, 'w')\n")
    give(shared / "python", MALLORY)
    as_alice(tools / "berth", "compat", "gpuselect", "--help")
    assert not plot.has_worked()
