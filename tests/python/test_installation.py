"""What `pip install .` needs: one line names all that is missing; nothing is downloaded; the sdist is complete.

The tests hide what the host has in a mount namespace of their own, without a network. They only configure the build:
./dev test builds the wheel itself (dev_wheel), and test_package.py installs it.
"""

import os
import shlex
import subprocess
import sys
import tarfile

import pytest
from conftest import ROOT

pytestmark = pytest.mark.release_only

FEDORA = "ID=fedora\n"
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\n'
UNKNOWN = "ID=void\n"


class Host:
    """This host without some of its folders, and without a network."""

    def __init__(self, folder):
        self.folder = folder
        self.mounts = []
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}

    def without(self, *folders):
        empty = self.folder / "empty"
        empty.mkdir(exist_ok=True)
        self.mounts += [(empty, folder) for folder in folders]
        return self

    def with_release(self, text):
        path = self.folder / "os-release"
        path.write_text(text)
        self.mounts.append((path, "/usr/lib/os-release"))
        return self

    def run(self, *command, **options):
        mounts = "".join(f"mount --bind {shlex.quote(str(over))} {under} && " for over, under in self.mounts)
        return subprocess.run(["unshare", "--mount", "--net", "sh", "-c", mounts + 'exec "$@"', "sh",
                               *[str(part) for part in command]],
                              env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=300, **options)

    def configure(self, source=ROOT, python=True):
        return self.run("cmake", "-S", source, "-B", self.folder / "build", "-G", "Ninja", "-DBERTH_TESTS=OFF",
                        "-DBERTH_BENCH=OFF", f"-DBERTH_PYTHON={'ON' if python else 'OFF'}",
                        f"-DPython_EXECUTABLE={sys.executable}")

    def missing(self, **options):
        """The only line of the output that says what is missing."""
        result = self.configure(**options)
        assert result.returncode == 1, result.stdout
        return only_line(result.stdout)


def only_line(output):
    [line] = [line.strip() for line in output.splitlines() if "cannot build berth" in line]
    return line


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_complete_host_needs_no_network(host):
    result = host.configure()
    assert result.returncode == 0, result.stdout


def test_all_that_is_missing_is_in_one_line(host):
    assert host.without("/usr/include/fmt").missing() == \
        "cannot build berth; not found: fmt 9 or later; run as root: apt-get install libfmt-dev"
    assert host.without("/usr/include/hiredis", "/usr/include/tl").missing() == \
        "cannot build berth; not found: fmt 9 or later, tl-expected, hiredis; " \
        "run as root: apt-get install libfmt-dev libexpected-dev libhiredis-dev"
    host.mounts.clear()
    result = host.configure()
    assert result.returncode == 0, result.stdout  # in the same folder, after everything was installed


def test_every_library_is_looked_for(host):
    host.env["CXX"] = "there-is-no-such-compiler"
    line = host.without("/usr/include").missing()
    assert line.endswith("apt-get install g++ libfmt-dev libexpected-dev libtomlplusplus-dev "
                         "libhiredis-dev libncurses-dev python3-dev"), line


def test_only_the_compiler_is_missing(host):
    host.env["CXX"] = "there-is-no-such-compiler"
    assert host.missing() == "cannot build berth; not found: a C++20 compiler; run as root: apt-get install g++"
    del host.env["CXX"]
    result = host.configure()
    assert result.returncode == 0, result.stdout


def test_a_compiler_that_is_too_old(host):
    """A compiler that says it is g++ 9."""
    old = host.folder / "g++-9"
    old.write_text('#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=9 "$@"\n')
    old.chmod(0o755)
    host.env["CXX"] = str(old)
    line = host.missing()
    assert "g++ 11 or clang++ 14, or later" in line and f"{old} is version 9." in line, line
    assert "apt-get" not in line


def test_a_python_without_nanobind(host):
    host.env["PYTHONPATH"] = str(host.folder)
    (host.folder / "nanobind.py").write_text("raise ImportError\n")
    line = host.missing()
    assert "nanobind" in line and "pip install 'nanobind" in line and "apt-get" not in line


@pytest.mark.parametrize("release, remedy", [
    (FEDORA, "run as root: dnf install fmt-devel hiredis-devel"),
    (ROCKY, "run as root: dnf install fmt-devel hiredis-devel"),
    (UNKNOWN, "install the equivalent of these packages of Debian: libfmt-dev libhiredis-dev")])
def test_the_packages_of_other_distributions(host, release, remedy):
    host.without("/usr/include/fmt", "/usr/include/hiredis").with_release(release)
    assert host.missing().endswith("; " + remedy)


def test_the_end_of_what_pip_prints(host):
    host.without("/usr/include/fmt", "/usr/include/toml++")
    result = host.run(sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-build-isolation",
                      "--no-index", "--no-deps", f"--config-settings=build-dir={host.folder}/build",
                      "--wheel-dir", host.folder, ROOT)
    assert result.returncode == 1, result.stdout
    end = "\n".join(result.stdout.splitlines()[-15:])
    assert only_line(end).endswith("apt-get install libfmt-dev libtomlplusplus-dev"), result.stdout
    assert "Call Stack" not in result.stdout


def test_the_sdist_is_complete(host):
    result = host.run(sys.executable, "-c", f"from scikit_build_core.build import build_sdist; build_sdist({str(host.folder)!r})",
                      cwd=ROOT)
    assert result.returncode == 0, result.stdout
    [path] = host.folder.glob("berth-*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(host.folder)
        files = {name.split("/", 1)[1]: size for name, size in
                 ((member.name, member.size) for member in archive.getmembers() if member.isfile())}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    tracked = {name for name in tracked if not name.startswith(".ci/") and (ROOT / name).exists()}
    assert tracked <= set(files)
    assert {"LICENSE", "README.md", "PKG-INFO", "cmake/requirements.cmake"} <= set(files)
    folders = {name.split("/")[0] for name in files}
    assert not folders & {".git", ".ci", ".mypy_cache", ".pytest_cache", "build"}, folders
    assert not [name for name in files if name.endswith((".pyc", ".o", ".so", ".whl"))]
    assert os.path.getsize(path) < 4 << 20
    [source] = [entry for entry in host.folder.iterdir() if entry.name.startswith("berth-") and entry.is_dir()]
    result = host.configure(source)
    assert result.returncode == 0, result.stdout
