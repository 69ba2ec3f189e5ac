"""`berth top` on a real terminal, in tmux: what it shows, what its keys do, and that it leaves the terminal as it was."""

import contextlib
import os
import re
import signal
import subprocess

import pytest
import redis_server
from conftest import BERTH, SANITIZED, SERVERS, assert_one_line_error
from leasing import NOBODY, eventually, jobs, ready  # noqa: F401 (jobs is a fixture)
from leftovers import processes_of
from waiting import LIMIT



class Terminal:
    """A shell in a tmux server of its own."""

    def __init__(self, server, width=80, height=24, env=None):
        self.server = server
        self.tmux = ["tmux", "-S", str(server.folder / "tmux"), "-f", "/dev/null"]
        self.env = {**server.env, "PS1": "ready> ", **(env or {})}
        # As a site might, so that tmux shows what is not ASCII whatever the test's locale.
        self.call("new-session", "-d", "-x", width, "-y", height, "bash", "--norc", "--noprofile", flags=["-u"])
        self.shows("ready>")

    def call(self, *words, flags=()):
        result = subprocess.run([*self.tmux, *flags, *map(str, words)], env=self.env, capture_output=True, text=True,
                                check=True)
        return result.stdout

    def screen(self, *flags):
        return self.call("capture-pane", "-p", *flags)

    def keys(self, *keys):
        """Each a letter, or the name that tmux has for a key."""
        self.call("send-keys", *keys)

    def line(self, text):
        """Types a command for the shell."""
        self.call("send-keys", "-l", text)
        self.keys("Enter")

    def shows(self, *texts):
        """Waits until each is on the screen, which is given."""
        return self.wait(lambda screen: all(text in screen for text in texts), f"{texts}")

    def lacks(self, *texts):
        return self.wait(lambda screen: not any(text in screen for text in texts), f"no {texts}")

    def wait(self, condition, what):
        found = None

        def seen():
            nonlocal found
            found = self.screen()
            return condition(found)
        eventually(seen, lambda: f"{what} on the screen:\n{found}")
        return found

    def top(self, command="berth top", *texts):
        self.line(command)
        return self.shows("q quit", *texts)

    def pid(self):
        """Of berth top: the shell's child."""
        shell = self.call("display-message", "-p", "#{pane_pid}").strip()
        with open(f"/proc/{shell}/task/{shell}/children") as file:
            [child] = file.read().split()
        return int(child)

    def state(self):
        """Whether the alternate screen is on, and the cursor."""
        return self.call("display-message", "-p", "#{alternate_on} #{cursor_flag}").strip()

    def mouse(self, text, button=0, column=20):
        """A click on the first line that shows `text`, as the terminal reports it: 0 is the left button, 64 and 65 are the
        wheel, which is never released; 3 is the release of a button."""
        line = next(number for number, line in enumerate(self.screen().splitlines()) if text in line)
        for code in (button, *([3] if button == 0 else [])):
            self.call("send-keys", "-H", *(f"{byte:02x}" for byte in (*b"\x1b[M", 32 + code, 33 + column, 33 + line)))

    def reports_the_mouse(self):
        return self.call("display-message", "-p", "#{mouse_any_flag}").strip() == "1"

    def selected_line(self):
        """The line that is shown in reverse video, with its blanks, without colours."""
        for line in self.screen("-e", "-N").splitlines():
            if re.match(r"(\x1b\[[0-9;]*m)*\x1b\[(?:0;)?7m", line):
                return re.sub(r"\x1b(?:\[[0-9;:]*m|\(B)|[\x0e\x0f]", "", line)
        return ""

    def resize(self, width, height):
        self.call("resize-window", "-x", width, "-y", height)

    def stop(self):
        subprocess.run([*self.tmux, "kill-server"], env=self.env, capture_output=True)


@pytest.fixture
def terminal(server):
    opened = []

    def open_one(**options):
        opened.append(Terminal(server, **options))
        return opened[-1]
    yield open_one
    for one in opened:
        one.stop()


def rows(screen):
    """The indices of the GPUs, from top to bottom."""
    return re.findall(r"^ +(\d+)  \S.* (?:free|leased|shared|stranger) ", screen, re.MULTILINE)


def test_a_job_comes_waits_and_goes(server, terminal, jobs):
    server.use("2x24GiB")
    view = terminal()
    screen = view.top("berth top", "2 GPUs: 2 free", "berth run -- python train.py")
    assert rows(screen) == ["0", "1"]
    assert view.state() == "1 0"
    first = jobs.hold("-n", "2", "--label", "training run 7")
    view.shows("2 GPUs: 2 leased", "exclusive", "training run 7", "on GPU 0", "Queue: ")
    second = jobs.wait("--label", "evaluation")
    view.shows("Queue: 1 ", "evaluation", " 0,1 leased ", "(training run 7)")
    assert first.end() == 0
    view.shows("1 free, 1 leased")
    view.lacks("training run 7", "Queue: 1")
    assert second.end() == 0
    view.shows("2 GPUs: 2 free")
    view.keys("q")
    view.shows("ready>")
    eventually(lambda: view.state() == "0 1", "the terminal as it was")
    eventually(lambda: "berth-probe" not in names_of(processes_of(server.harbour)), "the end of the driver's helper")


def names_of(pids):
    names = []
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", errors="replace") as file:
            names.append(file.read().strip())
    return names


def test_memory_load_and_strangers(server, terminal, jobs):
    server.use("2x24GiB")
    server.start_job("--mem", "9GiB", "--util", "70", gpu=1)
    jobs.hold("--gpu", "0", "--mem", "12GiB")
    view = terminal(width=120, height=30)
    screen = view.top("berth top", "berth-sim-job (pid")
    [shared] = re.findall(r"^ +0 .*$", screen, re.MULTILINE)
    [stranger] = re.findall(r"^ +1 .*$", screen, re.MULTILINE)
    assert "shared" in shared and "░" in shared and "█" not in shared
    assert "stranger" in stranger and "█" in stranger and "░" not in stranger and "70%" in stranger
    assert "9.0/24 GiB" in stranger
    view.wait(lambda shown: re.search(r"70%  +▆▆", shown), "the utilization over time")


def test_sorting_and_details(server, terminal):
    server.use("3x24GiB")
    server.start_job("--mem", "9GiB", "--util", "30", gpu=1)
    server.start_job("--mem", "3GiB", "--util", "70", gpu=2)
    view = terminal()
    view.top()
    view.wait(lambda screen: rows(screen) == ["0", "1", "2"], "the order of the indices")
    view.keys("s", "s")
    view.shows("(memory)")
    view.wait(lambda screen: rows(screen) == ["1", "2", "0"], "the order of the memory")
    view.keys("s")
    view.wait(lambda screen: rows(screen) == ["2", "1", "0"], "the order of the utilization")
    view.keys("g", "Enter")
    view.shows("GPU 2 ", server.status()["gpus"][2]["uuid"], " 3 GiB ", " 24 GiB", "berth-sim-job (pid")
    view.keys("Escape")
    view.shows("q quit")
    view.keys("h")
    view.shows("Keys", "Tab", "pause")
    view.keys("q")
    view.shows("q quit")


def test_the_mouse_selects_scrolls_and_shows_details(server, terminal, jobs):
    server.use("2x24GiB")
    jobs.hold("--gpu", "1", "--label", "mine")
    view = terminal()
    view.top("berth top", "mine")
    assert view.reports_the_mouse()
    view.wait(lambda _: view.selected_line().startswith("   0  "), "GPU 0 selected")
    view.mouse("mine")
    view.wait(lambda _: " mine " in view.selected_line(), "the lease selected")
    view.mouse("mine", button=64)
    view.wait(lambda _: view.selected_line().startswith("   1  "), "the wheel moved up")
    view.mouse("mine", button=65)
    view.wait(lambda _: " mine " in view.selected_line(), "the wheel moved down")
    view.keys("g")
    view.wait(lambda _: view.selected_line().startswith("   0  "), "GPU 0 selected")

    def opened(screen):  # two presses that a slow machine delays are two clicks: then once more
        if "Lease " not in screen and "q quit" in screen:
            view.mouse("mine")
            view.mouse("mine")
        return "Lease " in screen
    view.wait(opened, "the details of the lease")
    view.keys("Escape", "q")
    view.wait(lambda _: not view.reports_the_mouse(), "the end of the reports")


@pytest.mark.parametrize("width", [80, 137])
def test_the_selected_row_is_highlighted_over_the_full_width(server, terminal, width):
    view = terminal(width=width)
    view.top()
    view.wait(lambda _: len(view.selected_line()) == width, "a full line in reverse video")


def test_processes_and_charts_use_the_room(server, terminal, jobs):
    server.use("4x24GiB")
    job = jobs.start("berth", "run", "--gpu", "2", "--time", "2h", "--label", "training", "--", "berth-sim-job", "--quiet",
                     "--mem", "9GiB", "--util", "70")
    view = terminal(width=160, height=50)
    view.top("berth top", "training", "ends in 2h", "berth-sim-job (pid", "9 GiB", "GPU 2 utilization", "GPU 2 memory")
    view.wait(lambda screen: re.search(r" CPU +\d+%  RAM +\d+/\d+ GiB", screen), "the load of this host")
    view.shows("free: GPUs 0,1,3")
    view.resize(80, 10)
    view.wait(lambda screen: "(pid" not in screen and re.search(r"^ +2  leased .* in (2h|1h \d+m) +training", screen, re.M),
              "the compact list")
    view.resize(80, 24)
    view.shows("(pid")
    view.keys("v")
    view.wait(lambda screen: "view (compact)" in screen and "(pid" not in screen, "the compact list")
    assert job.runs


def test_colours_by_load_and_temperature(server, terminal):
    server.use({"gpus": [{"memory": "8GiB", "count": 2}, {"memory": "8GiB", "temperature_c": 85}]})
    server.start_job("--mem", "1GiB", "--util", "95", gpu=0)
    view = terminal()
    view.top("berth top", "95%")
    view.keys("j")  # the selected row has no colours

    def coloured(_):
        screen = view.screen("-e")
        return all(re.search(pattern, screen) for pattern in (r"\x1b\[33m +95%", r"\x1b\[2m +0%", r"\x1b\[33m *85°C"))
    view.wait(coloured, "95% and 85 °C in yellow, 0% dim")


def test_the_filter_works_while_it_is_typed(server, terminal, jobs):
    server.use("3x24GiB")
    jobs.hold("--gpu", "1", "--label", "mine")
    user = server.status()["gpus"][1]["leases"][0]["user"]
    view = terminal()
    view.top("berth top", "mine")
    view.keys("f", *user[:2])
    view.wait(lambda screen: rows(screen) == ["1"] and f"User: {user[:2]}" in screen, "only GPU 1")
    view.keys("q", "q", "q")
    view.wait(lambda screen: rows(screen) == [], "no GPU")
    view.keys("BSpace", "BSpace", "BSpace", "Enter")
    view.shows(f"({user[:2]})", "mine")
    view.keys("Escape")
    view.wait(lambda screen: rows(screen) == ["0", "1", "2"], "all GPUs")


def test_cancel_asks_and_then_cancels(server, terminal, jobs):
    server.use("1x24GiB")
    jobs.hold()
    waiter = jobs.wait("--label", "evaluation")
    ticket = server.status()["queue"][0]["ticket"]
    view = terminal()
    view.top("berth top", "evaluation")
    view.keys("G", "c")
    view.shows(f"ticket {ticket} (evaluation)?", "75.")
    view.keys("n")
    view.lacks("(evaluation)?")
    assert waiter.runs
    view.keys("c")
    view.shows("(evaluation)?")
    view.keys("y")
    view.shows(f"Ticket {ticket} ")
    assert waiter.process.wait(LIMIT) == 75
    view.lacks("evaluation")


def test_release_asks_and_then_releases(server, terminal, jobs):
    server.use("1x24GiB")
    shell = jobs.start("bash", "-c", 'eval "$(berth acquire --label mine)"; echo ready; read -r line')
    ready(shell)
    lease = server.status()["gpus"][0]["leases"][0]["id"]
    view = terminal()
    view.top("berth top", "mine")
    view.keys("j", "r")
    view.shows(f"lease {lease} (mine)", "?")
    view.keys("y")
    view.shows(f"Lease {lease} ", "1 GPU: 1 free")
    assert server.status()["gpus"][0]["state"] == "free"
    assert shell.runs


def test_a_job_ends_by_c_and_not_by_r(server, terminal, jobs):
    server.use("1x24GiB")
    job = jobs.hold("--label", "mine")
    lease = server.status()["gpus"][0]["leases"][0]["id"]
    view = terminal()
    view.top("berth top", "mine")
    view.keys("r")
    view.shows("press c to end the job")
    assert job.runs
    view.keys("c")
    view.shows(f"End job {lease} (mine)?")
    view.keys("y")
    view.shows(f"job {lease} has ended", "1 GPU: 1 free")
    assert job.process.wait(LIMIT) == 128 + signal.SIGTERM


@pytest.mark.needs_root
def test_what_is_others_is_left_to_them(server, terminal, jobs, open_build):
    server.use("1x24GiB")
    jobs.hold("--label", "theirs", program=open_build / "bin" / "berth")
    jobs.wait("--label", "later", program=open_build / "bin" / "berth")
    status = server.status()
    lease, ticket = status["gpus"][0]["leases"][0]["id"], status["queue"][0]["ticket"]
    view = terminal()
    view.top(f"{' '.join(NOBODY)} {open_build}/bin/berth top", "theirs", "later")
    view.keys("r")
    view.shows(f"{lease} belongs to root")
    view.keys("G", "c")
    view.shows(f"{ticket} belongs to root")
    view.keys("y")
    view.shows("q quit")
    assert len(server.status()["queue"]) == 1


def test_resizes(server, terminal):
    server.use(SERVERS / "lab.json")
    view = terminal(width=120, height=40)
    view.top("berth top", "POWER")
    view.resize(80, 24)
    screen = view.lacks("POWER")
    assert max(map(len, screen.splitlines())) <= 80
    view.resize(50, 8)
    view.shows("50x8", "60x10")
    view.resize(200, 50)
    view.shows("POWER", "q quit")


def shell_says(view, command):
    """What a command prints in the terminal's shell."""
    path = view.server.folder / "said"
    path.unlink(missing_ok=True)
    view.line(f"{{ {command}; }} > {path}.new 2>&1; mv {path}.new {path}")
    eventually(path.exists, command)
    return path.read_text()


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "QUIT", *([] if SANITIZED else ["SEGV", "ABRT"])])
def test_whatever_ends_it_the_terminal_is_as_it_was(server, terminal, name):
    view = terminal()
    before = shell_says(view, "stty -a")
    view.top()
    assert view.state() == "1 0"
    number = signal.Signals[f"SIG{name}"]
    os.kill(view.pid(), number)
    view.shows("ready>")
    view.wait(lambda screen: "q quit" not in screen, "the first screen")
    assert shell_says(view, "echo $?") == f"{128 + number}\n"
    assert view.state() == "0 1"
    assert not view.reports_the_mouse()
    assert shell_says(view, "stty -a") == before


def test_ctrl_c_leaves(server, terminal):
    view = terminal()
    view.top()
    view.keys("C-c")
    view.lacks("q quit")
    assert shell_says(view, "echo $?") == "130\n"


def test_ctrl_z_and_fg(server, terminal, jobs):
    view = terminal()
    before = shell_says(view, "stty -a")
    view.top()
    for _ in range(2):
        view.keys("C-z")
        view.shows("Stopped")
        eventually(lambda: view.state() == "0 1", "the terminal as it was")
        assert not view.reports_the_mouse()
        assert shell_says(view, "stty -a") == before
        view.line("fg")
        view.shows("q quit", "4 GPUs: 4 free")
        assert view.state() == "1 0"
        assert view.reports_the_mouse()
    job = jobs.hold("--label", "later")
    view.shows("later")
    job.end()
    view.keys("q")
    view.lacks("q quit")
    assert shell_says(view, "stty -a") == before


def test_a_redraw_does_not_discard_ctrl_z(server, terminal):
    """A pending SIGTSTP is discarded by whoever sets the signal to "ignore", as ncurses does for the time of a redraw."""
    trace = server.folder / "trace"
    view = terminal()
    view.top(f"strace -f -o {trace} -e trace=rt_sigaction berth top", "4 GPUs: 4 free")
    view.keys("q")
    view.lacks("q quit")
    eventually(lambda: "+++ exited with 0 +++" in trace.read_text(), "the end of berth top")
    assert "SIGTSTP, {sa_handler=0x" in trace.read_text() and "SIGTSTP, {sa_handler=SIG_IGN" not in trace.read_text()


def test_a_pause_keeps_the_picture(server, terminal, jobs):
    view = terminal()
    job = jobs.hold("--label", "seen before")
    view.top("berth top", "seen before")
    view.keys("p")
    view.shows("paused")
    job.end()
    eventually(lambda: server.status()["gpus"][0]["state"] == "free", "the end of the lease")
    assert "seen before" in view.screen()
    view.keys("p")
    view.lacks("seen before", "paused")


def test_redis_goes_and_comes_back(server, terminal, jobs):
    redis = redis_server.RedisServer(server.folder)
    try:
        redis.skip_recovery_wait()
        server.env["BERTH_URL"] = redis.url()
        view = terminal()
        view.top("berth top", "4 GPUs: 4 free")
        redis.kill()
        view.shows("! ", "reached", "4 GPUs: 4 free")
        view.keys("h")
        view.shows("Keys")
        view.keys("h")
        redis.start()
        redis.skip_recovery_wait()
        view.lacks("reached")
        jobs.hold("--label", "healed")
        view.shows("healed")
    finally:
        redis.kill()


def test_a_driver_that_hangs_keeps_no_key_waiting_and_heals(server, terminal):
    good = {"gpus": [{"name": "A", "memory": "8GiB"}]}
    server.use({**good, "faults": [{"call": "nvmlInit", "hang": True}]})
    server.env["BERTH_DRIVER_TIMEOUT"] = "4s"
    view = terminal()
    view.top("berth top", "! Waiting")
    view.keys("h")
    view.shows("Keys", "Tab", "pause")
    view.keys("h")
    view.shows("NVRM")
    server.use(good)
    view.shows("1 GPU: 1 free")
    view.lacks("NVRM", "! Waiting")


def test_who_leaves_does_not_wait_for_a_driver_that_hangs(server, terminal):
    server.use({"gpus": [{"name": "A", "memory": "8GiB"}], "faults": [{"call": "nvmlInit", "hang": True}]})
    server.env["BERTH_DRIVER_TIMEOUT"] = "1h"
    view = terminal()
    view.top()
    view.keys("q")
    view.lacks("q quit")
    assert shell_says(view, "echo $?") == "0\n"


def test_hostile_labels_are_escaped(server, terminal, jobs):
    server.use("1x24GiB")
    jobs.hold("--label", "\x1b[2Jred\x07\u202e")
    view = terminal()
    view.top("berth top", r"\x1b[2Jred\x07\u202e")
    view.keys("j", "Enter")
    view.shows(r"\x1b[2Jred\x07\u202e", "Lease")


def test_ascii_where_the_locale_has_no_more(server, terminal, jobs):
    server.use("2x24GiB")
    jobs.hold("--gpu", "0", "--label", "Grün")
    server.start_job("--mem", "9GiB", gpu=1)
    view = terminal(env={"LANG": "C", "LC_ALL": "C"})
    screen = view.top("berth top", "Gr\\u00fcn", "####", "===", "...")
    assert screen.isascii()


def test_a_locale_that_is_not_installed_does_not_break_utf8(server, terminal):
    server.start_job("--mem", "9GiB", gpu=1)
    view = terminal(env={"LANG": "xx_XX.UTF-8"})
    view.top("berth top", "█", "°C")


def test_colours_unless_they_are_unwanted(server, terminal):
    view = terminal()
    view.top()
    view.wait(lambda _: "\x1b[32mfree" in view.screen("-e"), "a green free")
    view.keys("q")
    view.lacks("q quit")
    view.top("NO_COLOR=1 berth top", "free")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", view.screen("-e"))


@pytest.mark.parametrize("kind, words", [("dumb", ["'dumb'", "TERM", "berth status --watch"]),
                                         ("no-such-type", ["'no-such-type'", "TERM", "berth status --watch"]),
                                         ("", ["TERM", "berth status --watch"])])
def test_terminals_that_cannot_be_drawn_on(server, terminal, kind, words):
    view = terminal()
    said = view.server.folder / "errors"
    code = shell_says(view, f"TERM={kind} berth top 2> {said} > /dev/tty; echo $?")
    assert code == "64\n"
    text = said.read_text()
    assert text.startswith("berth: top: ") and text.count("\n") == 1
    for word in words:
        assert word in text


def test_without_a_terminal_it_says_what_to_use(server):
    assert_one_line_error(server.berth("top"), 64, "terminal", "berth status --watch")


def test_a_setting_that_is_wrong_is_told_at_once(server):
    assert_one_line_error(server.berth("top", env={"BERTH_DRIVER_TIMEOUT": "soon"}), 64, "BERTH_DRIVER_TIMEOUT")
    assert_one_line_error(server.berth("top", "--url", "http://nonsense"), 64, "redis://")
    assert_one_line_error(server.berth("top", "word"), 64, "'word'")


def test_it_shows_every_host(server, terminal, jobs):
    """The other one has told of itself, and is not asked."""
    redis = redis_server.RedisServer(server.folder)
    try:
        redis.skip_recovery_wait()
        server.env["BERTH_URL"] = redis.url()
        other = server.folder / "other"
        other.mkdir()
        other.chmod(0o1777)
        elsewhere = {"BERTH_HOST": "gpu-b", "BERTH_SIM": "2x80GiB", "BERTH_SIM_STATE": str(other / "state"),
                     "BERTH_DIR": str(other)}
        assert server.berth("status", env=elsewhere).returncode == 0
        jobs.hold("-n", "2", "--label", "over there", env=elsewhere)
        view = terminal(width=100, height=40)
        view.top("berth top", "2 hosts  6 GPUs: 4 free, 2 leased", "gpu-b", " ago", "over there")
        view.keys("g", "j", "r")
        view.shows(" gpu-b; ", "berth release")
    finally:
        redis.kill()
