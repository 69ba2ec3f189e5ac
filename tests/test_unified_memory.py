"""GPUs without memory of their own (GB10, DGX Spark): --mem counts by the host's memory."""

import re

import pytest
from conftest import SERVERS, assert_one_line_error
from leasing import jobs  # noqa: F401


def host_memory():
    """MemTotal and MemAvailable, in MiB."""
    with open("/proc/meminfo") as file:
        text = file.read()
    return tuple(int(re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE).group(1)) >> 10
                 for key in ("MemTotal", "MemAvailable"))


@pytest.mark.each_harbour
def test_the_memory_shown_is_the_hosts(server):
    [gpu] = server.use(SERVERS / "spark.json").status()["gpus"]
    total, _ = host_memory()
    assert abs(gpu["memory_total_mib"] - total) <= 1  # rounded
    assert 0 < gpu["memory_used_mib"] < total
    assert gpu["state"] == "free"  # what the host's programs use is not a stranger's


def test_mem_is_granted_and_has_limits(server):
    server.use(SERVERS / "spark.json")
    total, _ = host_memory()
    assert server.berth("run", "--no-wait", "--mem", "64MiB", "--", "true").returncode == 0
    assert_one_line_error(server.berth("run", "--mem", f"{total + 1024}MiB", "--", "true"), 69, "GiB")
    # Some of it is always in use.
    refused = server.berth("run", "--no-wait", "--mem", f"{total}MiB", "--", "true")
    assert refused.returncode == 75 and "memory" in refused.stderr and "host" in refused.stderr, refused


def test_reservations_add_up(server, jobs):
    server.use(SERVERS / "spark.json")
    most = f"{host_memory()[1] * 6 // 10}MiB"  # fits once, not twice
    job = jobs.run("--mem", most)
    job.gpus()
    assert server.status()["gpus"][0]["state"] == "shared"
    assert server.berth("run", "--no-wait", "--mem", "64MiB", "--", "true").returncode == 0
    assert server.berth("run", "--no-wait", "--mem", most, "--", "true").returncode == 75
    assert job.end() == 0
    assert server.berth("run", "--no-wait", "--mem", most, "--", "true").returncode == 0


def test_an_exclusive_lease_needs_no_memory(server):
    assert server.use(SERVERS / "spark.json").berth("run", "--no-wait", "--", "true").returncode == 0
