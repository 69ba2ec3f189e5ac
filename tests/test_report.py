"""`berth report`: what the history comes to, as text, JSON, CSV and a page."""

import csv
import html.parser
import json
import os
import pwd
import re
import socket
import subprocess
import time

import pytest
from conftest import BERTH, SIM_JOB, assert_fit_for_terminal, assert_one_line_error
from leasing import eventually, jobs  # noqa: F401
from waiting import LIMIT

HOUR = 3_600_000
HOSTILE = "<script>alert('x')</script>\"&\x1b[31m\u202e"
ME = pwd.getpwuid(os.geteuid()).pw_name


class Archive:
    """Lines of history, written as berth writes them."""

    def __init__(self, server):
        self.server = server
        self.folder = server.harbour / "archive"
        self.now = int(time.time() * 1000)
        self.number = 0

    def add(self, begin, hours, uid=None, **changes):
        """A lease that began so many hours ago and lasted so long, on GPU 0 alone."""
        self.number += 1
        uid = os.geteuid() if uid is None else uid
        granted = self.now - int(begin * HOUR)
        line = {"id": f"a{self.number:07}", "uid": uid, "command": "python train.py --lr 1", "label": "", "job": "",
                "within": "", "gpus": [gpu(0)], "memory": None, "asked_ms": granted, "granted_ms": granted,
                "ended_ms": granted + int(hours * HOUR), "ending": "exited", "code": 0, **changes}
        if self.server.redis:
            send(self.server, {**line, "host": socket.gethostname(), "user": name_of(uid)})
        else:
            self.write(uid, json.dumps(line), line["ended_ms"])
        return line

    def write(self, uid, text, ended_ms):
        self.folder.mkdir(mode=0o1777, exist_ok=True)
        own = self.folder / str(uid)
        own.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            os.chown(own, uid, uid)
        month = time.strftime("%Y-%m", time.gmtime(ended_ms / 1000))
        with open(own / f"history-{month}.jsonl", "a") as file:
            file.write(text + "\n")


def name_of(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def send(server, line):
    with server.redis.client() as client:
        client.xadd(f"{server.prefix}:history", {"line": json.dumps(line)})


def gpu(index, **measured):
    return {"uuid": f"GPU-{index}", "index": str(index), "name": "A6000", **measured}


@pytest.fixture
def archive(server):
    return Archive(server)


def report(server, *flags, **options):
    """`berth report --json`; it must succeed and complain of nothing."""
    result = server.berth("report", "--json", *flags, **options)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.isascii()
    return json.loads(result.stdout)


def some_days(archive):
    """Leases of three days, on two GPUs, with all that can be measured, and with nothing."""
    archive.add(30, 10, gpus=[gpu(0, utilization_pct=80), gpu(1, utilization_pct=40)], idle_ms=HOUR)
    archive.add(50, 2, job="evaluate", asked_ms=archive.now - 50 * HOUR - 90_000)
    archive.add(12, 4, gpus=[gpu(1)], memory=8 << 30)
    archive.add(3, 2, idle_ms=int(1.5 * HOUR), label="forgotten")


# Figures.

@pytest.mark.each_harbour
def test_the_sums(server, archive):
    some_days(archive)
    result = report(server)
    total = result["total"]
    assert (total["leases"], total["running"], total["lost"]) == (4, 0, 0)
    assert total["gpu_hours"] == pytest.approx(24) and total["shared_gpu_hours"] == pytest.approx(4)
    assert total["shared_gib_hours"] == pytest.approx(32)
    assert total["utilization_pct"] == pytest.approx(60) and total["utilization_measured_gpu_hours"] == pytest.approx(20)
    assert total["idle_gpu_hours"] == pytest.approx(3.5) and total["idle_measured_gpu_hours"] == pytest.approx(22)
    assert (total["waited_s_median"], total["waited_s_longest"]) == (0, 90)
    assert total["energy_kwh"] is None
    for part in ("users", "jobs", "gpus", "days"):
        for key in ("gpu_hours", "shared_gpu_hours", "utilization_measured_gpu_hours", "idle_measured_gpu_hours"):
            assert sum(one[key] for one in result[part]) == pytest.approx(total[key], abs=1e-4), (part, key)
    assert [one["job"] for one in result["jobs"]] == ["python train.py", "evaluate"]
    assert [one["index"] for one in result["gpus"]] == ["0", "1"]
    assert [one["user"] for one in result["users"]] == [ME]
    [idle] = result["idle_leases"]
    assert (idle["label"], idle["idle_s"], idle["lasted_s"]) == ("forgotten", 5400, 7200)


def real_gpu(server, index, **measured):
    card = server.status()["gpus"][index]
    return {"uuid": card["uuid"], "index": str(card["index"]), "name": card["name"], **measured}


@pytest.mark.each_harbour
def test_occupancy_is_the_leased_share_of_the_time_of_all_gpus(server, archive):
    server.use("4x24GiB")
    busy = real_gpu(server, 0)
    archive.add(10, 5, gpus=[busy])
    archive.add(4, 2, gpus=[busy], memory=8 << 30)
    archive.add(3, 2, gpus=[busy], memory=8 << 30)  # beside the other for an hour
    archive.add(2, 1, gpus=[gpu(7)])  # a GPU that this host does not have any more
    result = report(server)
    assert (result["gpu_count"], result["total"]["shared_gpu_hours"]) == (4, pytest.approx(4))
    # In Redis, the recording begins when the first line was sent, which these lines were just now.
    assert result["capacity_gpu_hours"] == pytest.approx(40, abs=0.1)
    assert result["total"]["occupancy_pct"] == pytest.approx(20, abs=0.1)
    assert {one["uuid"]: one["occupancy_pct"] for one in result["gpus"]} == \
        {busy["uuid"]: pytest.approx(80, abs=0.4), "GPU-7": None}
    assert report(server, "--gpu", "0")["total"]["occupancy_pct"] == pytest.approx(80, abs=0.4)
    assert report(server, "--since", "3h")["capacity_gpu_hours"] == pytest.approx(12, abs=0.1)
    assert re.search(r"^Occupancy    20%: 8\.0 of 40\.0 .*\b4 GPUs since", server.berth("report").stdout, re.MULTILINE)


def test_without_a_driver_the_occupancy_is_unknown(server, archive):
    archive.add(5, 4)
    result = server.berth("report", "--json", env={"BERTH_SIM": "/no/such/server.json"})
    assert result.returncode == 0
    whole = json.loads(result.stdout)
    assert whole["total"]["gpu_hours"] == pytest.approx(4)
    assert whole["gpu_count"] is whole["capacity_gpu_hours"] is whole["total"]["occupancy_pct"] is None


def test_the_recording_may_have_begun_before_the_first_lease_of_the_period(server, archive):
    archive.add(100 * 24, 1)  # in a file of an earlier month
    archive.add(5, 4)
    result = report(server, "--since", "10d")
    assert result["recorded_since"] == result["since"]
    assert result["capacity_gpu_hours"] == pytest.approx(240 * result["gpu_count"], abs=0.1)


# Energy.

def test_the_energy_of_a_job_is_measured(server):
    server.use({"gpus": [{"memory": "24GiB", "count": 2, "idle_power_w": 50, "power_limit_w": 450}]})
    server.berth("run", "-n", "2", "--", SIM_JOB, "--quiet", "--util", "50", "--time", "1s")
    [path] = (server.harbour / "archive").glob("*/history-*.jsonl")
    last = json.loads(path.read_text().splitlines()[-1])
    # Half of what lies between idle and the limit, but for the moments before and after the job.
    assert all(50_000 <= one["power_mw"] <= 250_000 for one in last["gpus"])
    hours = (last["ended_ms"] - last["granted_ms"]) / HOUR
    total = report(server)["total"]
    assert total["energy_kwh"] == pytest.approx(sum(one["power_mw"] for one in last["gpus"]) / 1e6 * hours, rel=0.01)
    assert re.search(r"^Energy       [<\d.]+ Wh\b", server.berth("report").stdout, re.MULTILINE)


def test_a_driver_without_power_readings_measures_no_energy(server):
    server.use({"gpus": [{"memory": "24GiB"}], "faults": [{"call": "nvmlDeviceGetPowerUsage", "answer": "not_supported"}]})
    server.berth("run", "--", SIM_JOB, "--quiet", "--util", "50", "--time", "600ms")
    total = report(server)["total"]
    assert total["utilization_pct"] is not None and total["energy_kwh"] is None
    assert "Energy       not measured\n" in server.berth("report").stdout


def test_energy_by_user_and_day(server, archive):
    archive.add(30, 4, gpus=[gpu(0, power_mw=250_000), gpu(1, power_mw=50_000)])
    archive.add(20, 2, job="evaluate", gpus=[gpu(1)])
    result = report(server)
    assert result["total"]["energy_kwh"] == pytest.approx(1.2)
    assert result["total"]["energy_measured_gpu_hours"] == pytest.approx(8)
    assert {one["job"]: one["energy_kwh"] for one in result["jobs"]} == {"python train.py": pytest.approx(1.2), "evaluate": None}
    assert {one["index"]: one["energy_kwh"] for one in result["gpus"]} == {"0": pytest.approx(1), "1": pytest.approx(0.2)}
    assert sum(one["energy_kwh"] or 0 for one in result["days"]) == pytest.approx(1.2)
    text = server.berth("report").stdout
    assert re.search(r"^Energy       1\.2 kWh.*\b80%", text, re.MULTILINE) and "KWH" in text


def test_by_one_of_them(server, archive):
    some_days(archive)
    for by, key in (("user", "users"), ("job", "jobs"), ("gpu", "gpus"), ("day", "days")):
        result = report(server, "--by", by)
        assert [name for name in result if isinstance(result[name], list)] == [key]


def test_days_are_those_of_the_users_clock(server, archive):
    """The same lease, which spans a midnight in one place and none in the other."""
    now = time.gmtime(archive.now / 1000)
    since_noon = now.tm_hour - 12 + now.tm_min / 60 + 24  # of yesterday, UTC
    archive.add(since_noon + 2, 4)
    at_home = report(server, env={"TZ": "UTC"})["days"]
    far_away = report(server, env={"TZ": "Etc/GMT-12"})["days"]
    assert at_home[0]["gpu_hours"] == pytest.approx(4)
    assert [far_away[0]["gpu_hours"], far_away[1]["gpu_hours"]] == pytest.approx([2, 2], abs=0.02)
    assert at_home[-1]["day"] == time.strftime("%Y-%m-%d", now)


@pytest.mark.each_harbour
def test_since_cuts_what_began_before(server, archive):
    archive.add(10, 8)
    archive.add(10, 2)
    total = report(server, "--since", "6h")["total"]
    assert total["leases"] == 1 and total["gpu_hours"] == pytest.approx(4, abs=0.01)
    assert total["waited_s_median"] is None


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_filters(server, archive):
    archive.add(5, 1)
    archive.add(5, 2, uid=65534, gpus=[gpu(0), gpu(1)])
    assert report(server)["total"]["gpu_hours"] == pytest.approx(5)
    assert report(server, "--user", "nobody")["total"]["gpu_hours"] == pytest.approx(4)
    assert report(server, "--gpu", "1")["total"]["gpu_hours"] == pytest.approx(2)
    assert report(server, "--gpu", "GPU-0", "--user", "0")["total"]["gpu_hours"] == pytest.approx(1)


def test_what_nobody_measured_is_null(server, archive):
    archive.add(5, 1)
    total = report(server)["total"]
    assert total["utilization_pct"] is None and total["idle_gpu_hours"] is None
    text = server.berth("report").stdout
    assert re.search(r"^GPU-minutes +60\.0\D+$", text, re.MULTILINE) and re.search(r"^Utilization +\D+$", text, re.MULTILINE)


@pytest.mark.each_harbour
def test_leases_inside_of_others_are_not_counted_twice(server):
    server.berth("run", "--", BERTH, "run", "--", "true")
    total = report(server)["total"]
    assert (total["leases"], total["nested_leases"]) == (1, 1)


@pytest.mark.each_harbour
def test_what_runs_counts_until_now_and_what_is_gone_is_lost(server, archive, jobs):
    archive.add(5, 1, ending="running")
    archive.add(9, 2, ending="lost")
    job = jobs.hold()
    result = report(server)
    assert (result["total"]["running"], result["total"]["lost"]) == (1, 2)
    assert result["total"]["gpu_hours"] >= 3
    assert job.end() == 0
    eventually(lambda: report(server)["total"]["running"] == 0)


def test_how_what_runs_uses_its_gpus_is_not_known_yet(server, archive, jobs):
    """Older versions wrote what they had measured in its first second."""
    jobs.hold()
    [lease] = server.status()["gpus"][0]["leases"]
    archive.add(0, 0, id=lease["id"], gpus=[gpu(0, utilization_pct=100)], ending="running", idle_ms=0)
    total = report(server)["total"]
    assert total["running"] == 1
    assert total["utilization_pct"] is None and total["idle_gpu_hours"] is None


@pytest.mark.needs_root
def test_nobody_spoils_anothers_figures(server, archive):
    """By lines with another's id, in his own file."""
    line = archive.add(5, 4, uid=54321)
    archive.add(5, 0, uid=65534, id=line["id"], granted_ms=0, ended_ms=archive.now)
    archive.add(5, 0, uid=65534, id="", command="", gpus=[])
    archive.add(5, 0, uid=65534, id="x" * 10_000, granted_ms=10**18, ended_ms=10**18)
    archive.write(65534, json.dumps({**line, "ended_ms": line["ended_ms"] + HOUR}), archive.now)
    result = server.berth("report", "--json")
    assert "1 line " in result.stderr
    whole = json.loads(result.stdout)
    assert whole["damaged_lines"] == 1
    assert {one["user"]: one["gpu_hours"] for one in whole["users"]}["54321"] == pytest.approx(4)


# Text.

def test_the_text(server, archive):
    some_days(archive)
    result = server.berth("report")
    assert (result.returncode, result.stderr) == (0, "")
    for pattern in (r"^Leases       4$", r"^GPU-hours    24\.0: 3\.5 of the 22\.0 .*\b16%", r"^Shared       4\.0: .*\b32\.0 ",
                    r"^Occupancy    0%: ", r"^Utilization  60%: .*\b71%",
                    r"^Waited       <1s: .*\b95%.*\b1m 30s.*\b1m 30s",
                    r"python train\.py --lr 1 \(forgotten\)", r"~ .*\b90%"):
        assert re.search(pattern, result.stdout, re.MULTILINE), (pattern, result.stdout)
    assert "\x1b" not in result.stdout
    days = server.berth("report", "--by", "day").stdout.splitlines()
    assert days[0].split() == ["DAY", "GPU-HOURS", "SHARED", "OCCUPIED", "UTIL", "IDLE", "LEASES", "WAITED"]


def test_a_new_installation_has_minutes(server, archive):
    archive.add(2, 0.5, gpus=[gpu(0, power_mw=300_000)])
    archive.add(1, 0.0004, job="short")
    text = server.berth("report").stdout
    assert re.search(r"^GPU-minutes  30\.0: ", text, re.MULTILINE) and "GPU-minutes by day" in text
    assert re.search(r"^JOB +GPU-MINUTES +OCCUPIED +UTIL +IDLE +WH ", text, re.MULTILINE)
    assert re.search(r"^short +<0\.1 ", text, re.MULTILINE)
    assert re.search(r"^Energy       150\.0 Wh: ", text, re.MULTILINE)
    page = server.berth("report", "--html").stdout
    assert "GPU-minutes" in page and "GPU-hours" not in page
    assert re.search(r"^GPU-seconds  1\.4: ", server.berth("report", "--since", "70m").stdout, re.MULTILINE)
    archive.add(9, 3)
    assert re.search(r"^GPU-hours    3\.5: ", server.berth("report").stdout, re.MULTILINE)


@pytest.mark.parametrize("width", [120, 80, 40, 30])
@pytest.mark.parametrize("language", ["C.UTF-8", "C"])
def test_it_fits(server, archive, width, language):
    some_days(archive)
    archive.add(300, 5, job="a name that is much longer than there is room for", idle_ms=5 * HOUR, label="x" * 99)
    for flags in ([], ["--by", "day"], ["--by", "job"]):
        result = server.berth("report", *flags, env={"COLUMNS": str(width), "LANG": language})
        assert result.returncode == 0
        assert_fit_for_terminal(result.stdout)
        assert max(map(len, result.stdout.splitlines())) <= max(width, 33), result.stdout
        assert result.stdout.isascii() == (language == "C")
    if width == 80:
        assert ("#" if language == "C" else "\u2588") in result.stdout


def test_many_rows_are_cut_where_all_is_shown(server, archive):
    for i in range(15):
        archive.add(5, 1, job=f"job {i}")
    assert re.search(r"\b5 .*berth report --by job", server.berth("report").stdout)
    assert len(server.berth("report", "--by", "job").stdout.splitlines()) == 16


def test_many_days_share_columns(server, archive):
    for day in range(0, 300, 3):
        archive.add(24 * day + 5, 1)
    result = server.berth("report", "--since", "400d", env={"COLUMNS": "80"})
    assert " 5 days" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_colours_only_on_a_terminal(server, archive):
    some_days(archive)
    shown = server.run("script", "-qec", f"{BERTH} report", "/dev/null")
    assert "\x1b[1m" in shown.stdout
    plain = server.run("script", "-qec", f"{BERTH} report", "/dev/null", env={"NO_COLOR": "1"})
    assert "\x1b[" not in plain.stdout


def test_nothing_that_a_terminal_would_obey(server, archive):
    archive.add(5, 4, command=HOSTILE, label=HOSTILE, job=HOSTILE, idle_ms=4 * HOUR,
                gpus=[{"uuid": HOSTILE, "index": HOSTILE, "name": HOSTILE}])
    assert_fit_for_terminal(server.berth("report").stdout)


# CSV.

def rows(server, *flags):
    result = server.berth("report", "--csv", *flags)
    assert (result.returncode, result.stderr) == (0, "")
    return list(csv.DictReader(result.stdout.splitlines()))


def test_csv_has_the_figures_of_the_json(server, archive):
    some_days(archive)
    archive.add(2, 1, gpus=[gpu(0, power_mw=400_000)])
    whole = report(server)
    table = rows(server)
    assert [row["by"] for row in table][:3] == ["total", "user", "job"]
    assert list(table[0])[5:] == [key for key in whole["total"] if key != "nested_leases"]
    lists = {"user": whole["users"], "job": whole["jobs"], "gpu": whole["gpus"], "day": whole["days"]}
    for by, figures in {"total": [whole["total"]], **lists}.items():
        mine = [row for row in table if row["by"] == by]
        assert len(mine) == len(figures)
        for row, one in zip(mine, figures):
            keys = [key for key in row if key in one and key not in ("host", "uuid", "name")]
            assert len(keys) >= 17
            for key in keys:
                if one[key] is None:
                    assert row[key] == ""
                else:
                    assert float(row[key]) == pytest.approx(one[key], abs=0.02), (by, key)
    assert [row["name"] for row in table if row["by"] == "gpu"] == ["0", "1"]
    assert {row["by"] for row in rows(server, "--by", "gpu")} == {"gpu"}


@pytest.mark.parametrize("name", ["=1+1", "+1", "-2", "@SUM(A1)", "  =1", "\t=1", "\r=1", "\uff1d1+1", "=a,b", '="x"',
                                  "\u00a0=1", "\u3000+1", " \u2009\u202f-1", "\ufeff=1", "\u200b@1"])
def test_no_value_is_a_formula_for_a_spreadsheet(server, archive, name):
    archive.add(5, 1, job=name, gpus=[{"uuid": name, "index": name, "name": name}])
    for row in rows(server):
        for value in row.values():
            assert not value.strip() or value.strip()[0] not in "=+-@\uff1d\t\r", row
    [job] = [row["name"] for row in rows(server, "--by", "job")]
    shown = name.replace("\t", "\\t").replace("\r", "\\r").replace("\ufeff", "\\ufeff").replace("\u200b", "\\u200b")
    assert job == (shown if shown.startswith("\\") else "'" + name)


def test_csv_keeps_any_text_in_its_field(server, archive):
    name = "a, \"quoted\"; and\nsecond line \x1b[31m"
    archive.add(5, 1, job=name)
    [row] = rows(server, "--by", "job")
    assert row["name"] == 'a, "quoted"; and\\nsecond line \\x1b[31m' and row["leases"] == "1"
    assert_fit_for_terminal(server.berth("report", "--csv").stdout)


# The page.

class Page(html.parser.HTMLParser):
    """Checks that what is opened is closed, and gathers what there is."""

    EMPTY = {"meta", "rect", "line", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.values = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.values += [(tag, name, value) for name, value in attributes]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.values += [(tag, name, value) for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page(server, archive):
    some_days(archive)
    path = server.folder / "page.html"
    result = server.berth("report", "--html", path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    text = path.read_text()
    page = Page(text)
    # Plots of time, utilization and waiting by day (not of occupancy and energy, which are 0 and unknown), and a bar in each row.
    result = report(server)
    bars = sum(len(result[part]) for part in ("users", "jobs", "gpus", "days"))
    assert text.startswith("<!DOCTYPE html>") and page.tags.count("figure") == 3 and page.tags.count("table") == 5
    assert page.tags.count("svg") == 3 + bars
    assert "prefers-color-scheme: dark" in text
    titled = [name for tag, name, _ in page.values if tag == "svg" and name == "aria-label"]
    assert len(titled) == page.tags.count("svg")
    # Nothing from elsewhere.
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not [value for _, name, value in page.values if name in ("src", "href")]
    assert "url(" not in text and "@import" not in text
    assert "24.0" in page.texts and any(re.match(r"3\.5 of the 22\.0 .*\b16%", text) for text in page.texts)


def test_the_page_goes_to_stdout_without_a_file(server, archive):
    some_days(archive)
    for flags in (["--html"], ["--html", "-"], ["--html", "--by", "user"]):
        result = server.berth("report", *flags)
        page = Page(result.stdout)
        assert result.returncode == 0 and page.tags.count("figure") == (0 if "--by" in flags else 3)
        assert page.tags.count("table") == (1 if "--by" in flags else 5)


def test_nothing_in_the_page_is_obeyed(server, archive):
    archive.add(5, 4, command=HOSTILE, label=HOSTILE, job=HOSTILE, idle_ms=4 * HOUR,
                gpus=[{"uuid": HOSTILE, "index": HOSTILE, "name": HOSTILE}])
    text = server.berth("report", "--html").stdout
    page = Page(text)
    assert "script" not in page.tags and "<script" not in text
    assert_fit_for_terminal(text)
    assert any("<script>alert('x')</script>" in piece for piece in page.texts)  # as text, it is there


def test_a_page_is_not_for_a_terminal(server, archive):
    some_days(archive)
    result = server.run("script", "-qec", f"{BERTH} report --html", "/dev/null")
    assert result.returncode == 64
    assert "--html" in result.stdout and "<html" not in result.stdout


# What is wrong, or not there.

@pytest.mark.parametrize("flags, words", [
    (["--since", "soon"], ["--since", "'soon'"]),
    (["--gpu", "first"], ["--gpu", "first"]),
    (["--by", "week"], ["--by", "'week'", "user", "job", "gpu", "day"]),
    (["--json", "--html"], ["--json", "--html"]),
    (["--json", "--csv"], ["--json", "--csv"]),
    (["--csv", "--html", "page.html"], ["--csv", "--html"]),
    (["--html", "/no/such/folder/page.html"], ["/no/such/folder/page.html", "No such file"]),
    (["yesterday"], ["yesterday"]),
])
def test_wrong_usage(server, flags, words):
    assert_one_line_error(server.berth("report", *flags), 64, *words)


def test_a_gpu_that_there_is_not_is_told(server):
    for flags, words in ((["--gpu", "17"], "GPU 17"), (["--gpu", "1"], "--since"), ([], "--since")):
        result = server.berth("report", *flags)
        assert (result.returncode, result.stdout) == (0, "")
        assert result.stderr.startswith("berth: ") and result.stderr.count("\n") == 1, result.stderr
        assert words in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_told(server, archive):
    some_days(archive)
    assert_one_line_error(server.berth("report", "--html", "/dev/full"), 64, "/dev/full", "No space left")


def test_an_empty_history_says_what_to_do(server):
    result = server.berth("report")
    assert (result.returncode, result.stdout) == (0, "")
    assert "--since" in result.stderr
    empty = report(server)
    assert empty["total"]["leases"] == 0 and empty["users"] == empty["days"] == empty["idle_leases"] == []
    page = Page(server.berth("report", "--html").stdout)
    assert "svg" not in page.tags and "table" not in page.tags


def test_its_reader_may_go_away(server, archive):
    """Before it has read all: more than a pipe holds."""
    for i in range(2000):
        archive.add(5, 1, job=f"job {i} {'x' * 60}")
    whole = server.berth("report", "--by", "job", env={"COLUMNS": "120"})
    assert whole.returncode == 0 and len(whole.stdout) > 1 << 16
    done = subprocess.run(["bash", "-c", f'{BERTH} report --by job | head -1; echo "${{PIPESTATUS[0]}}"'], text=True,
                          env={**server.env, "COLUMNS": "120"}, capture_output=True, timeout=LIMIT)
    assert done.stderr == "" and done.stdout.splitlines()[1:] == ["141"], "by SIGPIPE, like others"
