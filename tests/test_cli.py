"""Help, version, and what the shipped files need."""

import re
import subprocess

import pytest
from conftest import BERTH, BUILD, ROOT

COMMANDS = ["run", "acquire", "release", "status", "queue", "cancel", "drain", "undrain", "config", "completion", "help"]


def test_version(server):
    version = re.search(r"project\(berth VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert server.berth("--version").stdout == server.berth("-V").stdout == f"berth {version}\n"


def test_help_is_the_same_in_each_way_to_ask(server):
    whole = server.berth("--help")
    assert (whole.returncode, whole.stderr) == (0, "")
    assert server.berth("help").stdout == whole.stdout
    assert all(re.search(rf"^  {name} ", whole.stdout, re.MULTILINE) for name in COMMANDS)
    for name in COMMANDS:
        assert server.berth("help", name).stdout == server.berth(name, "--help").stdout != whole.stdout


def test_the_help_lists_the_commands_in_groups(server):
    whole = server.berth("--help").stdout
    groups = re.findall(r"^(\S.*):\n((?:  .*\n)+)", whole, re.MULTILINE)
    lists = {heading: re.findall(r"^  ([a-z]+) ", lines, re.MULTILINE) for heading, lines in groups}
    assert lists["Jobs"][:2] == ["run", "batch"] and "drain" in lists["Administration"] and "status" in lists["GPUs and history"]
    assert "complete" not in sum(lists.values(), [])


def test_help_fits_eighty_columns_or_nearly(server):
    for arguments in [["--help"], *[["help", name] for name in COMMANDS]]:
        assert max(map(len, server.berth(*arguments).stdout.splitlines())) <= 92


@pytest.mark.release_only  # counts the system calls of the plain build
def test_help_does_not_start_to_ask_the_driver(server):
    def processes(*arguments):
        trace = server.folder / "trace"
        assert server.run("strace", "-o", trace, "-e", "trace=clone,clone3,fork,vfork", BERTH, *arguments).returncode == 0
        return len(re.findall(r"^(clone3?|v?fork)\(", trace.read_text(), re.MULTILINE))
    assert processes("status") == 1
    for arguments in (["status", "--help"], ["run", "-h"], ["acquire", "-n", "2", "--help"], ["help", "run"], ["--version"]):
        assert processes(*arguments) == 0, arguments


@pytest.mark.release_only
@pytest.mark.parametrize("path", ["bin/berth", "bin/berth-sim-job", "lib/sim/libnvidia-ml.so.1",
                                  "lib/sim/libcuda.so.1"])
def test_the_shipped_files_need_nothing_but_glibc(path):
    needed = subprocess.run(["readelf", "-d", BUILD / path], capture_output=True, text=True, check=True).stdout
    libraries = set(re.findall(r"NEEDED.*\[(.+?)\]", needed))
    assert libraries <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, libraries


@pytest.mark.release_only
@pytest.mark.parametrize("path, prefix", [("lib/sim/libnvidia-ml.so.1", "nvml"), ("lib/sim/libcuda.so.1", "cu")])
def test_the_stand_ins_export_the_interface_alone(path, prefix):
    symbols = subprocess.run(["nm", "-D", "--defined-only", BUILD / path], capture_output=True, text=True,
                             check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in symbols.splitlines()}
    assert len(names) > 20
    assert {name for name in names if not name.startswith((prefix, "berth_sim_"))} == set()


@pytest.mark.needs_root
@pytest.mark.release_only
def test_dev_tells_a_user_without_root_what_to_install(open_folder):
    """Neither root nor sudo: the exact command, and nothing else happens."""
    tools = open_folder / "bin"
    tools.mkdir()
    for name, text in {"dpkg-query": "exit 1", "sudo": "exit 1"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    tree = open_folder / "tree"
    tree.mkdir()
    (tree / "dev").write_bytes((ROOT / "dev").read_bytes())
    (tree / "dev").chmod(0o755)
    tree.chmod(0o777)
    result = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "bash", tree / "dev", "build"],
                            env={"PATH": f"{tools}:/usr/bin:/bin"}, stdin=subprocess.DEVNULL, capture_output=True,
                            text=True)
    assert result.returncode == 1
    assert re.search(r"sudo apt-get update && sudo apt-get install -y --no-install-recommends g\+\+ cmake", result.stderr)
