"""/metrics of `berth serve`: Prometheus' own checker takes it, and the figures follow what happens."""

import json
import os
import pwd
import re
import subprocess
import time

import pytest
from conftest import ROOT, SERVERS, SIM_JOB
from leasing import eventually, jobs  # noqa: F401
from serving import serve  # noqa: F401
from waiting import LIMIT

ME = pwd.getpwuid(os.geteuid()).pw_name
GIB = 1 << 30
SAMPLE = re.compile(r'(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\.)*)"(?:,|$)')


class Metrics:
    """What was scraped at one moment."""

    def __init__(self, text):
        self.text = text
        self.samples = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            found = SAMPLE.fullmatch(line)
            assert found, line
            labels = LABEL.findall(found["labels"] or "")
            assert "".join(f'{name}="{value}",' for name, value in labels)[:-1] == (found["labels"] or ""), line
            key = (found["name"], frozenset((name, re.sub(r"\\(.)", r"\1", value)) for name, value in labels))
            assert key not in self.samples, f"twice: {line}"
            self.samples[key] = float(found["value"])

    def all(self, name, **labels):
        wanted = set(labels.items())
        return [value for (one, having), value in self.samples.items() if one == name and wanted <= having]

    def one(self, name, **labels):
        """The value of the one sample that has these labels; None if there is none."""
        found = self.all(name, **labels)
        assert len(found) <= 1, (name, labels, found)
        return found[0] if found else None

    def states(self):
        """The state of each GPU, by index."""
        states = {}
        for (name, labels), value in self.samples.items():
            if name == "berth_gpu_state" and value == 1:
                labels = dict(labels)
                assert labels["gpu"] not in states, "two states"
                states[labels["gpu"]] = labels["state"]
        return states

    def values(self, name):
        return {value for _, labels in self.samples for label, value in labels if label == name}


def scrape(serving):
    answer = serving.get("/metrics")
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Metrics(answer.body.decode())


def until(serving, condition, what):
    """The first scrape for which the condition holds."""
    return eventually(lambda: (lambda metrics: metrics if condition(metrics) else None)(scrape(serving)), what)


def promtool(*arguments, text=None):
    return subprocess.run(["promtool", *map(str, arguments)], input=text, text=True, capture_output=True, timeout=LIMIT)


def assert_checked(text):
    """Neither wrong nor, by its rules of style, dubious."""
    result = promtool("check", "metrics", text=text)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), text


# The format.

@pytest.mark.parametrize("name", sorted(path.stem for path in SERVERS.glob("*.json")))
def test_promtool_takes_it(server, jobs, serve, name):
    server.use(SERVERS / f"{name}.json")
    jobs.hold("--mem", "1GiB")
    waiting = jobs.run("-n", "1")
    eventually(lambda: waiting.out or "waiting" in waiting.err, "a lease or a ticket")
    metrics = scrape(serve())
    assert_checked(metrics.text)
    assert set(metrics.states()) == {str(gpu["index"]) for gpu in server.status()["gpus"]}


def test_promtool_notices(serve):
    metrics = scrape(serve())
    assert promtool("check", "metrics", text=metrics.text.replace("berth_grants_total", "berth_grants")).returncode != 0
    assert promtool("check", "metrics", text=metrics.text + "no sample\n").returncode != 0


def test_hostile_names_and_labels(server, jobs, serve):
    """A GPU's name is escaped; of what users write, nothing is there at all."""
    name = 'GPU "\\ \u00fc {le="1"}'
    server.use({"gpus": [{"name": name, "memory": "24GiB"}]})
    jobs.hold("--label", "SECRET-LABEL", "--job", "SECRET-JOB", command=["sh", "-c", "echo; read -r SECRET_COMMAND"])
    metrics = scrape(serve())
    assert_checked(metrics.text)
    assert "SECRET" not in metrics.text
    [shown] = metrics.values("name")
    assert shown == name
    assert metrics.states() == {"0": "leased"}


# What they mean.

@pytest.mark.release_only
def test_figures_follow_jobs_that_start_wait_and_die(server, jobs, serve):
    server.use("2x24GiB")
    serving = serve()
    metrics = scrape(serving)
    assert metrics.states() == {"0": "free", "1": "free"}
    assert metrics.all("berth_user_leases") == [] and metrics.one("berth_queue_length") == 0
    assert metrics.one("berth_queue_oldest_seconds") is None
    assert (metrics.one("berth_grants_total"), metrics.one("berth_wait_seconds_count")) == (0, 0)

    job = jobs.hold("-n", "2", command=[SIM_JOB, "--mem", "9GiB", "--util", "70"])
    metrics = until(serving, lambda now: now.one("berth_gpu_utilization_ratio", gpu="0") == 0.7, "the job's load")
    assert metrics.states() == {"0": "leased", "1": "leased"}
    assert metrics.all("berth_gpu_memory_bytes") == metrics.all("berth_gpu_memory_reserved_bytes") == [24 * GIB] * 2
    assert 9 * GIB <= metrics.one("berth_gpu_memory_used_bytes", gpu="1") < 11 * GIB
    assert metrics.all("berth_gpu_processes") == [1, 1] and metrics.all("berth_gpu_strangers") == [0, 0]
    assert metrics.one("berth_user_leases", user=ME) == 1 and metrics.one("berth_user_gpus", user=ME) == 2
    assert (metrics.one("berth_grants_total"), metrics.one("berth_wait_seconds_count")) == (1, 1)
    assert metrics.one("berth_wait_seconds_bucket", le="+Inf") == 1

    waits = jobs.wait("--mem", "4GiB")
    metrics = until(serving, lambda now: now.one("berth_queue_length") == 1, "the ticket")
    assert metrics.one("berth_user_tickets", user=ME) == 1
    metrics = until(serving, lambda now: now.one("berth_queue_oldest_seconds") > 0, "its age")
    assert metrics.one("berth_queue_oldest_seconds") < 60

    job.process.kill()
    for pid in [gpu["processes"][0]["pid"] for gpu in server.status()["gpus"] if gpu["processes"]][:1]:
        os.kill(pid, 9)
    waits.gpus()
    metrics = until(serving, lambda now: now.one("berth_queue_length") == 0, "the empty queue")
    metrics = until(serving, lambda now: sorted(now.states().values()) == ["free", "shared"], "the next one's share")
    assert sum(metrics.all("berth_gpu_memory_reserved_bytes")) == 4 * GIB
    assert (metrics.one("berth_grants_total"), metrics.one("berth_wait_seconds_count")) == (2, 2)
    assert metrics.one("berth_wait_seconds_sum") > 0
    assert waits.end() == 0
    until(serving, lambda now: now.one("berth_lease_endings_total", ending="exited") == 1, "its end")


@pytest.mark.release_only
def test_each_lease_counts_once(server, serve):
    """Also those that are over before anybody looks; and those that have ended before the server began do not."""
    for _ in range(3):
        server.berth("run", "--", "true")
    serving = serve()
    for _ in range(5):
        server.berth("run", "--", "true")
    server.berth("run", "--", "sh", "-c", "kill -9 $$")
    server.berth("run", "--", "sh", "-c", "berth run -- true")  # one inside of the other
    metrics = until(serving, lambda now: now.one("berth_lease_endings_total", ending="exited") == 6, "the ends")
    assert metrics.one("berth_lease_endings_total", ending="killed") == 1
    assert metrics.one("berth_grants_total") == metrics.one("berth_wait_seconds_count") == 7


@pytest.mark.release_only
@pytest.mark.parametrize("harbour", ["redis"], indirect=True)
def test_each_lease_counts_once_where_hosts_share_a_harbour(server, jobs, serve, harbour):
    serving = serve()
    job = jobs.hold()
    for _ in range(3):
        server.berth("run", "--", "true")
    metrics = until(serving, lambda now: now.one("berth_lease_endings_total", ending="exited") == 3, "the ends")
    assert metrics.one("berth_grants_total") == 4
    assert_checked(metrics.text)
    job.end()
    metrics = until(serving, lambda now: now.one("berth_lease_endings_total", ending="exited") == 4, "the last end")
    assert metrics.one("berth_grants_total") == 4


@pytest.mark.release_only
def test_strangers(server, serve):
    serving = serve()
    assert scrape(serving).one("berth_strangers") == 0
    server.start_job("--mem", "2GiB", gpu=1)
    metrics = until(serving, lambda now: now.one("berth_strangers") == 1, "the stranger")
    assert metrics.one("berth_gpu_strangers", gpu="1") == 1 and metrics.states()["1"] == "stranger"


@pytest.mark.release_only
def test_idle_leases(server, jobs, serve):
    job = jobs.hold()
    serving = serve()
    assert scrape(serving).one("berth_idle_leases") == 0
    # The time of the record's last change is when it was last used.
    [record] = server.harbour.glob("lease-*")
    eventually(lambda: json.loads(record.read_text()).get("sampled"), "a lease that is looked at")
    long_ago = time.time() - 3600
    os.utime(record, (long_ago, long_ago))
    metrics = until(serving, lambda now: now.one("berth_idle_leases") == 1, "the idle lease")
    assert metrics.one("berth_user_idle_leases", user=ME) == 1
    job.end()


# What is not known.

def test_what_the_driver_does_not_tell_has_no_sample(server, serve):
    server.use(SERVERS / "sick.json")
    metrics = scrape(serve())
    assert metrics.states()["0"] == "lost"
    for name in ("memory_used_bytes", "utilization_ratio", "temperature_celsius", "power_watts", "processes", "strangers"):
        assert metrics.one(f"berth_gpu_{name}", gpu="0") is None, name
    assert metrics.one("berth_gpu_utilization_ratio", gpu="1") is None
    assert metrics.one("berth_gpu_power_watts", gpu="1") is None
    assert metrics.one("berth_gpu_temperature_celsius", gpu="2") is None
    assert metrics.one("berth_gpu_memory_used_bytes", gpu="3") is None
    assert metrics.one("berth_gpu_strangers", gpu="4") == 1  # memory that nobody accounts for
    assert metrics.one("berth_gpu_utilization_ratio", gpu="2") == 0  # which is known


@pytest.mark.release_only
def test_of_what_cannot_be_looked_at_nothing_is_told_but_the_past(server, serve):
    serving = serve()
    server.berth("run", "--", "true")
    until(serving, lambda now: now.one("berth_grants_total") == 1, "the grant")
    seen = scrape(serving).one("berth_look_timestamp_seconds")
    assert abs(seen - time.time()) < 60
    server.harbour.rename(server.folder / "aside")
    server.harbour.write_text("no directory")
    metrics = until(serving, lambda now: now.one("berth_look_success") == 0, "a look that fails")
    assert_checked(metrics.text)
    assert metrics.states() == {} and metrics.one("berth_queue_length") is None
    assert metrics.one("berth_grants_total") == 1
    assert metrics.one("berth_look_timestamp_seconds") >= seen
    server.harbour.unlink()
    (server.folder / "aside").rename(server.harbour)
    metrics = until(serving, lambda now: now.one("berth_look_success") == 1, "a look that succeeds")
    assert len(metrics.states()) == 4


# What uses them.

def expressions():
    dashboard = json.loads((ROOT / "docs" / "grafana.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def names_in(text):
    return set(re.findall(r"\bberth_[a-z_]+", text))


def families(text):
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def everything(server, jobs, serve):
    """The text of a server on which there is a sample of everything."""
    jobs.hold("-n", "4")
    jobs.wait()
    return scrape(serve()).text


def test_the_dashboard_uses_what_there_is(server, jobs, serve):
    text = everything(server, jobs, serve)
    used = set().union(*map(names_in, expressions()))
    assert len(used) >= 15
    known = families(text)
    assert {name.removesuffix("_bucket") for name in used} <= known
    samples = {line.split("{")[0].split()[0] for line in text.splitlines() if not line.startswith("#")}
    assert used <= samples


def test_the_document_lists_what_there_is(server, jobs, serve):
    text = everything(server, jobs, serve)
    table = (ROOT / "docs" / "serve.md").read_text().split("| metric |")[1].split("\n\n")[0]
    assert names_in(table) == families(text)


@pytest.mark.release_only
def test_the_dashboard_can_be_imported(tmp_path):
    dashboard = json.loads((ROOT / "docs" / "grafana.json").read_text())
    [source] = [one["name"] for one in dashboard["__inputs"]]
    for panel in dashboard["panels"]:
        for part in (panel, *panel["targets"]):
            assert part["datasource"]["uid"] == f"${{{source}}}"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) and dashboard["id"] is None
    # Each expression is one that Prometheus understands.
    rules = [{"record": f"r{n}", "expr": expr.replace("$host", ".*")} for n, expr in enumerate(expressions())]
    assert_rules(tmp_path, {"groups": [{"name": "dashboard", "rules": rules}]})


def assert_rules(folder, rules):
    path = folder / "rules.yml"
    path.write_text(rules if isinstance(rules, str) else json.dumps(rules))
    result = promtool("check", "rules", path)
    assert result.returncode == 0, result


@pytest.mark.release_only
def test_the_alerts_and_the_configuration_of_the_document_are_taken(tmp_path):
    scraping, alerts = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "serve.md").read_text(), re.DOTALL)
    assert_rules(tmp_path, alerts)
    path = tmp_path / "prometheus.yml"
    path.write_text(scraping)
    result = promtool("check", "config", path)
    assert result.returncode == 0, result
