"""What every test of the whole program uses: the built binary, and a simulated server of its own.

BERTH_TEST_PRESET names the build to test: release (build/bin), asan (build/asan/bin) or coverage (build/coverage/bin).

A test with the mark each_harbour runs twice: with a directory, and with a Redis server.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

import redis_server
from leftovers import kill_all_of
from waiting import LIMIT, NO_AUDIT_S, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[1]
PRESET = os.environ.get("BERTH_TEST_PRESET", "release")
BUILD = ROOT / "build" if PRESET == "release" else ROOT / "build" / PRESET
BERTH = BUILD / "bin" / "berth"
SIM_JOB = BUILD / "bin" / "berth-sim-job"
SIM_LIBRARIES = BUILD / "lib" / "sim"
SERVERS = ROOT / "sim" / "servers"

SANITIZED = PRESET == "asan"
# With Redis, berth runs the code of the directory as well: a sanitizer sees all of it in one run.
HARBOURS = ["redis"] if SANITIZED else ["directory", "redis"]


# Who is started in the background, or by nohup, ignores these, and so would all that the tests start.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

# All faults between berth and Redis take minutes; else there are some of each kind.
ALL_REDIS_FAULTS = bool(os.environ.get("BERTH_TEST_REDIS_FAULTS"))


# `./dev test --quick`: the file that gets what was left out. Its modules take seconds.
QUICK = os.environ.get("BERTH_TEST_QUICK")
QUICK_MODULES = set("""test_acquire test_api test_bad_input test_batch test_batch_sweeps test_cli test_commands test_compat_runner test_log test_report
    test_run test_selection test_serve test_serve_hostile test_serve_safety test_simulation test_status""".split())


def pytest_generate_tests(metafunc):
    if metafunc.definition.get_closest_marker("each_harbour"):
        metafunc.parametrize("harbour", HARBOURS, indirect=True)


def needs_root(item):
    # open_build is a copy of the programs for other users, and only root can become another user.
    return "needs_root" in item.keywords or "open_build" in item.fixturenames


def starts_servers(item):
    return "redis" in getattr(getattr(item, "callspec", None), "params", {}).values()


def keep_quick_tests(items):
    """Leaves out all but the quick tests, and writes to the file QUICK what was left out."""
    others = [item for item in items if item.path.stem not in QUICK_MODULES]
    items[:] = [item for item in items if item.path.stem in QUICK_MODULES]
    root = [item for item in items if needs_root(item)]
    servers = [item for item in items if starts_servers(item) and not needs_root(item)]
    items[:] = [item for item in items if not needs_root(item) and not starts_servers(item)]
    modules = {item.path.stem for item in others}
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        pathlib.Path(QUICK).write_text(f"{len(others)} tests of {len(modules)} modules of tests/ that are slow, or need root or "
                                       f"servers; {len(root)} more tests that need root, and {len(servers)} with Redis\n")


def pytest_collection_modifyitems(config, items):
    """Leaves out the tests of the release build with other builds, so that nothing counts as skipped; and known defects,
    which prove nothing, if not all faults are wanted."""
    for item in items:
        # They limit memory, preload libraries and mount file systems, which a sanitizer's runtime does not support.
        if item.path.parent.name == "attacks":
            item.add_marker("release_only")
        if os.getuid() != 0 and needs_root(item):
            item.add_marker(pytest.mark.skip(reason="needs root"))
    unwanted = {"asan": {"release_only", "release_build"}, "coverage": {"release_build"}}.get(PRESET, set())
    unwanted |= set() if ALL_REDIS_FAULTS else {"all_redis_faults", "xfail"}
    items[:] = [item for item in items if not unwanted & set(item.keywords)]
    if QUICK:
        keep_quick_tests(items)


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_root: becomes another user, mounts, makes namespaces, or expects the name root")
    config.addinivalue_line("markers", "release_only: shows a sanitizer no code that other tests do not run (docs/testing.md)")
    config.addinivalue_line("markers", "release_build: uses the programs of the release build or of the wheel, whatever BERTH_TEST_PRESET says")
    config.addinivalue_line("markers", "all_redis_faults: takes long; only with BERTH_TEST_REDIS_FAULTS")
    config.addinivalue_line("markers", "each_harbour: runs with a directory and again with Redis (docs/testing.md)")


class Server:
    """A simulated server: an environment in which programs see its GPUs."""

    def __init__(self, folder):
        self.folder = folder
        # Made here: who makes a new harbour waits a moment for leases of the one before it.
        self.harbour = folder / "harbour"
        self.harbour.mkdir()
        self.harbour.chmod(0o1777)
        self.env = {
            "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "BERTH_SIM": "4x24GiB",
            "BERTH_SIM_STATE": str(folder / "sim.state"),
            "BERTH_SIM_AUDIT": str(NO_AUDIT_S),
            "BERTH_DIR": str(self.harbour),
        }
        if SANITIZED:
            # The leak checker stops its own process as a debugger does, which fails beside strace and
            # SIGSTOP. The unit tests look for leaks.
            self.env["ASAN_OPTIONS"] = "detect_leaks=0"
        self.processes = []
        self.redis = self.prefix = None  # where its harbour is in Redis

    def use(self, description):
        """Describes the server: "8x80GiB", a path, or a dict that is written to a file."""
        if isinstance(description, dict):
            path = self.folder / "server.json"
            path.write_text(json.dumps(description))
            description = path
        self.env["BERTH_SIM"] = str(description)
        return self

    def run(self, *command, env=None, timeout=LIMIT, **options):
        """Runs a command to its end, with its output captured as text."""
        whole = {**self.env, **(env or {})}
        whole = {name: value for name, value in whole.items() if value is not None}
        return subprocess.run([str(part) for part in command], env=whole, timeout=timeout, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, **options)

    def berth(self, *arguments, **options):
        return self.run(BERTH, *arguments, **options)

    def status(self, **options):
        """`berth status --json`, parsed; it must succeed and say nothing on stderr."""
        result = self.berth("status", "--json", **options)
        assert (result.returncode, result.stderr) == (0, "")
        return json.loads(result.stdout)

    def start(self, *command, **options):
        """Starts a command that ends with the test at the latest."""
        env = {**self.env, **options.pop("env", {})}
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([str(part) for part in command], env=env, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, **options)
        self.processes.append(process)
        return process

    def start_job(self, *flags, gpu=None, prefix=(), env=None, program=SIM_JOB):
        """Starts a berth-sim-job and waits until it has its memory."""
        env = dict(env or {})
        if gpu is not None:
            env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(gpu)}
        job = self.start(*prefix, program, *flags, env=env)
        first_line = job.stdout.readline()
        assert first_line.startswith("berth-sim-job: pid"), first_line
        return job

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()
        kill_all_of(self.harbour)  # what the killed have left behind


@pytest.fixture
def open_folder():
    """A folder that every user may enter and write to, as /tmp is (pytest's own are closed)."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="berth-test-"))
    folder.chmod(0o1777)
    yield folder
    remove(folder)


def remove(folder):
    """With all that is in it. A keeper may still write the end of its lease there."""
    def gone():
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    wait_until(gone, f"{folder} is removed")


@pytest.fixture
def open_build(open_folder):
    """A copy of the programs that other users can reach, wherever the repository lies."""
    for part in ("bin", "lib/sim"):
        shutil.copytree(BUILD / part, open_folder / "copy" / part, symlinks=True)
    return open_folder / "copy"


@pytest.fixture
def harbour(request):
    """Which harbour the test's server has."""
    return getattr(request, "param", "directory")


@pytest.fixture
def server(open_folder, harbour):
    one = Server(open_folder)
    if harbour == "redis":
        redis = redis_server.shared_server()
        redis.skip_recovery_wait(open_folder.name)
        one.env["BERTH_URL"] = redis.url(f"prefix={open_folder.name}")
        one.redis, one.prefix = redis, open_folder.name
    yield one
    one.stop()


def assert_one_line_error(result, code, *words):
    """Bad input gets one clear line on stderr, the right exit code, and nothing on stdout."""
    assert result.returncode == code, result
    assert result.stdout == ""
    assert result.stderr.startswith("berth: ") and result.stderr.endswith("\n")
    assert result.stderr.count("\n") == 1, result.stderr
    assert_fit_for_terminal(result.stderr)
    for word in words:
        assert word in result.stderr


def assert_fit_for_terminal(text):
    """Nothing that a terminal would obey: no control character but the newline."""
    assert all(c == "\n" or c.isprintable() for c in text), repr(text)
