"""`berth config`, and the defaults for requests in berth.toml."""

import json
import re

import pytest
from conftest import BERTH, assert_fit_for_terminal, assert_one_line_error
from leasing import jobs  # noqa: F401

pytestmark = pytest.mark.release_only


class Files:
    """The user's file, and that of the site."""

    def __init__(self, server):
        self.user = server.folder / ".config" / "berth.toml"
        self.user.parent.mkdir()
        self.site = server.folder / "site.toml"
        server.env["BERTH_SITE_FILE"] = str(self.site)


@pytest.fixture
def files(server):
    return Files(server)


def settings(server, **options):
    result = server.berth("config", "--json", **options)
    assert (result.returncode, result.stderr) == (0, ""), result
    return {one["name"]: (one["value"], one["source"]) for one in json.loads(result.stdout)["settings"]}


def test_each_setting_its_value_and_its_source(server, files):
    files.site.write_text('commands = "hidden"\n[defaults]\npolicy = "pack"\nlabel = "site"\n')
    files.user.write_text('hosts = ["a", "b"]\n[defaults]\nlabel = "mine"\nmem = "auto"\n')
    user, site = str(files.user), str(files.site)
    found = settings(server, env={"BERTH_HOST": "gpu07"})
    assert found == {
        "directory": (str(server.harbour), "BERTH_DIR"), "url": (None, None), "host": ("gpu07", "BERTH_HOST"),
        "hosts": (["a", "b"], user), "commands": ("hidden", site), "defaults.mem": ("auto", user), "defaults.time": (None, None),
        "defaults.label": ("mine", user), "defaults.policy": ("pack", site), "jobs.output": ("64 MiB", None),
        "jobs.keep": ("14d", None), "notify.mail": (None, None), "notify.webhook": (None, None),
        "notify.webhook_format": (None, None), "notify.command": (None, None), "notify.events": (None, None),
        "notify.always": (None, None), "notify.about_to_end": ("10m", None), "notify.idle": ("30m", None), "driver_timeout": ("20s", None),
        "simulation": ("4x24GiB", "BERTH_SIM")}
    text = server.berth("config").stdout
    assert re.search(rf"^hosts +a, b +{re.escape(user)}$", text, re.MULTILINE) and re.search("^url +- +default$", text, re.MULTILINE)
    assert re.search(rf"^defaults.label +mine +{re.escape(user)}$", text, re.MULTILINE)
    assert f"  {user}\n  {site}\n" in text
    files.site.unlink()
    assert f"  {site} (does not exist)\n" in server.berth("config").stdout


def test_config_shows_no_password_and_nothing_that_a_terminal_obeys(server, files):
    files.user.write_text('url = "redis://:Xq7Z@localhost:1/0"\n[defaults]\nlabel = "\\u001b[31mred"\n')
    files.user.chmod(0o600)
    for words in (["config"], ["config", "--json"]):
        result = server.berth(*words)
        assert result.returncode == 0 and "Xq7Z" not in result.stdout and "localhost:1" in result.stdout, result
        assert_fit_for_terminal(result.stdout)


@pytest.mark.parametrize("text, line, words", [
    ('hsots = ["a"]\n', 1, ["'hsots'", "did you mean hosts?"]),
    ('[defaults]\nmemm = "auto"\n', 2, ["'memm' in [defaults]", "did you mean mem?"]),
    ('colour = "red"\n', 1, ["'colour'", "url, host, hosts, commands, defaults"]),
    ('\nmem = "auto"\n', 2, ["below [defaults]"]),
    ('defaults = "auto"\n', 1, ["[defaults]"]),
    ("[defaults]\nmem = 8\n", 2, ['mem = "VALUE"']),
], ids=repr)
def test_a_wrong_setting_is_named(server, files, text, line, words):
    files.user.write_text(text)
    for command in (["config"], ["run", "--", "true"]):
        assert_one_line_error(server.berth(*command), 64, f"{files.user}, line {line}:", *words)


@pytest.mark.parametrize("setting", ['mem = "8 apples"', 'time = "soon"', 'policy = "best"', 'mem = "8"'])
def test_a_default_with_a_wrong_value_names_its_file(server, files, setting):
    files.site.write_text(f"[defaults]\n{setting}\n")
    name = setting.split()[0]
    for command in (["run", "--", "true"], ["config"], ["config", "--json"]):
        assert_one_line_error(server.berth(*command), 64, f"{files.site}, line 2: {name}: ")
    value = {"mem": "1GiB", "time": "1h", "policy": "pack"}[name]
    assert server.berth("run", f"--{name}", value, "--", "true").returncode == 0, "a flag replaces it"


def lease_of(server):
    [record] = server.harbour.glob("lease-*")
    return json.loads(record.read_text())


def test_defaults_for_requests(server, files, jobs):  # noqa: F811
    files.site.write_text('[defaults]\nmem = "2GiB"\ntime = "1h"\nlabel = "site"\npolicy = "pack"\n')
    files.user.write_text('[defaults]\nlabel = "mine"\n')
    job = jobs.hold()
    lease = lease_of(server)
    assert (lease["label"], lease["request"]["memory_bytes"], lease["request"]["time_ms"], lease["request"]["policy"]) == \
        ("mine", 2 << 30, 3600_000, "pack")
    job.end()
    job = jobs.hold("--mem", "all", "--label", "", "--time", "2h", "--policy", "spread")
    lease = lease_of(server)
    assert (lease["label"], lease["request"].get("memory_bytes"), lease["request"]["time_ms"]) == ("", None, 7200_000)
    job.end()


def states(server):
    return [one["state"] for one in server.status()["gpus"]]


def test_a_default_of_memory_gives_way_to_the_request(server, files, jobs):  # noqa: F811
    """Inside a lease, with --per-gpu, and (auto) for a shell without a job type."""
    files.user.write_text('[defaults]\nmem = "2GiB"\n')
    outer = server.berth("run", "--mem", "1GiB", "--", BERTH, "run", "--", "true")
    assert (outer.returncode, outer.stderr) == (0, "")
    (server.folder / "jobs.txt").write_text("true\n")
    assert server.berth("batch", "--per-gpu", "2", "jobs.txt", cwd=server.folder).returncode == 0
    shell = jobs.start("bash", "-c", f'eval "$({BERTH} acquire)"; echo ready; read -r line')
    shell.gpus()
    assert "shared" in states(server)
    shell.end()
    files.user.write_text('[defaults]\nmem = "auto"\n')
    shell = jobs.start("bash", "-c", f'eval "$({BERTH} acquire)"; echo ready; read -r line')
    shell.gpus()
    assert "leased" in states(server)
    assert_one_line_error(server.berth("acquire", "--print", "ids", "--mem", "auto"), 64, "--job")


def test_a_default_of_memory_counts_after_the_end_of_an_outer_lease(server, files, jobs):  # noqa: F811
    """BERTH_LEASE remains set in a shell whose lease has ended. The request is not inside a lease then."""
    files.user.write_text('[defaults]\nmem = "2GiB"\n')
    server.env["BERTH_LEASE"] = server.berth("run", "--", "sh", "-c", "printf $BERTH_LEASE").stdout
    job = jobs.hold()
    assert lease_of(server)["request"]["memory_bytes"] == 2 << 30
    job.end()


def test_the_lines_of_a_batch_have_the_defaults(server, files):
    files.user.write_text('[defaults]\nlabel = "thesis"\n')
    (server.folder / "jobs.txt").write_text("true\n")
    assert server.berth("batch", "jobs.txt", cwd=server.folder).returncode == 0
    [entry] = [json.loads(line) for line in server.berth("log", "--json").stdout.splitlines()]
    assert entry["label"] == "thesis"
