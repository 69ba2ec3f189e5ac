"""GPUGET's GPU.py on berth: what its document shows, and what it could not promise."""

import json
import os
import pathlib
import re
import shutil
import stat

import pytest
from conftest import BUILD, SERVERS, assert_one_line_error
from leasing import NOBODY, eventually, gpu, jobs, ready, state_of  # noqa: F401
from compat_tools import PYTHON, good, python_in_path, tools  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def gpu_py(server, *words, **options):
    return server.run("GPU.py", *words, **options)


def says(server, *words, **options):
    return good(gpu_py(server, *words, **options))


def bash(jobs, script, session=True, **options):
    """A shell that runs the script, says "ready", and stays until its stdin ends. By default in a session of its own, as a
    login has: what other tests leave behind at the same time does not count there."""
    return jobs.start("bash", "--norc", "-c", f"{script}\necho ready\nread -r line\nexit 0", start_new_session=session, **options)


def list_file(server):
    """The file of the one list that there is."""
    [path] = (server.folder / "harbour.compat").glob("gpuget-managed-*")
    return path


@pytest.fixture
def managed(tools):
    """All four GPUs are managed."""
    assert says(tools, "--redis-manage-all") == "4\n"
    return tools


# The document, as it is written.

def test_the_document(tools, jobs):
    job = bash(jobs, """\
GPU.py --redis-manage-all
GPU.py --redis-manage-all --force
read GPUID < <(GPU.py --get)
echo "has $GPUID"
GPU.py --managed
GPU.py --idle
GPU.py --info
GPU.py --log
GPU.py ---redis-purge
GPU.py --release $GPUID
GPU.py --idle
GPU.py --help > /dev/null""")
    lines = ready(job)
    assert job.err == ""
    logged = [lines.pop(6), lines.pop(6)]
    assert lines == ["4", "4", "has 0", "There is 4 MANAGED GPUs, IDs: 0,1,2,3", "There is 3 IDDLE GPUs, IDs: 1,2,3",
                     "GPU total:4 managed:4 idle:3", "GPU 0 released.", "There is 4 IDDLE GPUs, IDs: 0,1,2,3"]
    assert re.fullmatch(f"{STAMP}: Redis initialized, 4 managed GPUs\\.", logged[0])
    assert re.fullmatch(f"{STAMP}: GPU 0 acquired by PID {job.pid}\\.", logged[1])


def test_get_prints_the_id_alone(managed, jobs):
    job = bash(jobs, "GPU.py --get | od -c | head -1")
    assert ready(job) == ["0000000   0  \\n"]


def test_what_else_it_prints(managed, jobs):
    assert says(managed, "--gpu-count") == "4\n"
    assert says(managed, "--managed-gpu-count") == "4\n"
    assert says(managed, "--active") == "There are no active GPUs.\n"
    job = bash(jobs, "a=$(GPU.py --get); b=$(GPU.py --get)")
    ready(job)
    active = says(managed, "--active").splitlines()
    assert active[0] == "There is 2 ACTIVE GPUs, IDs: 0,1"
    for index, line in enumerate(active[1:]):
        assert re.fullmatch(f"GPU {index} acquired by PID {job.pid} at {STAMP}", line)
    assert says(managed, "--redis-manage-all") == "Objects already initialized, add force to proceed.\n"
    assert says(managed, "--release", "2") == "GPU 2 is already idle.\n"
    assert says(managed, "--release", "7") == "GPU 7 is not managed.\n"
    assert says(managed, "--redis-delete") == "All Redis objects related to GPU management were deleted.\n"
    assert says(managed, "--info") == "GPU total:4 no managed\n"
    assert says(managed, "--managed") == "There is 0 MANAGED GPUs, IDs: \n"
    assert says(managed, "--idle") == "There is 0 IDDLE GPUs, IDs: \n"
    assert says(managed, "--managed-gpu-count") == "0\n"
    assert says(managed, "--log") == ""
    assert state_of(managed, 0) == "leased", "to forget a list ends no lease"


def test_the_log(managed, jobs):
    job = bash(jobs, "a=$(GPU.py --get); b=$(GPU.py --get); GPU.py --release $a")
    ready(job)
    lines = [line[21:] for line in says(managed, "--log").splitlines()]
    assert lines[0] == "Redis initialized, 4 managed GPUs."
    assert sorted(lines[1:]) == [f"GPU 0 acquired by PID {job.pid}.", f"GPU 0 released by PID {job.pid}.",
                                 f"GPU 1 acquired by PID {job.pid}."]
    assert lines.index(f"GPU 0 acquired by PID {job.pid}.") < lines.index(f"GPU 0 released by PID {job.pid}.")
    says(managed, "--redis-delete")
    says(managed, "--redis-manage", "1")
    assert [line[21:] for line in says(managed, "--log").splitlines()][0] == "Redis initialized, 1 managed GPUs."


# Which GPUs are managed.

@pytest.mark.parametrize("flags, number, ids", [
    (["--redis-manage", "0,2"], 2, "0,2"), (["--redis-manage", "3, 1 ,3"], 2, "1,3"),
    (["--redis-manage", "2,9"], 1, "2"),
    (["--redis-manage-count", "1"], 1, "3"), (["--redis-manage-count", "3"], 3, "1,2,3"),
    (["--redis-manage-count", "4"], 4, "0,1,2,3")])
def test_some_are_managed(tools, flags, number, ids):
    assert says(tools, *flags) == f"{number}\n"
    assert says(tools, "--managed") == f"There is {number} MANAGED GPUs, IDs: {ids}\n"
    assert says(tools, "--idle") == f"There is {number} IDDLE GPUs, IDs: {ids}\n"


def test_only_managed_ones_are_handed_out(tools, jobs):
    says(tools, "--redis-manage", "1,3")
    job = bash(jobs, "a=$(GPU.py --get); b=$(GPU.py --get); echo $a $b")
    assert ready(job) == ["1 3"]


def test_force_replaces_the_list_and_ends_no_lease(managed, jobs):
    job = bash(jobs, "a=$(GPU.py --get)")
    ready(job)
    assert says(managed, "--redis-manage", "0,1", "--force") == "2\n"
    assert says(managed, "--idle") == "There is 1 IDDLE GPUs, IDs: 1\n"
    assert says(managed, "--redis-manage-all", "--force") == "4\n"
    assert says(managed, "--idle") == "There is 3 IDDLE GPUs, IDs: 1,2,3\n"
    assert job.end() == 0


def test_more_than_there_are(tools):
    result = gpu_py(tools, "--redis-manage-count", "5")
    assert (result.returncode, result.stderr) == (255, "")
    assert result.stdout == "Can not manage more GPUs than available but you requested 5 out of 4 possible!\n"
    assert says(tools, "--info") == "GPU total:4 no managed\n"


CONNECTIONS = [[], ["--redis-server", "other"], ["--redis-port", "6380"], ["--redis-db", "1"], ["--redis-prefix", "X"],
               ["--redis-prefix", "../../x\n/"], ["--redis-prefix", "é" * 3000]]


def test_lists_are_kept_apart(tools, jobs):
    for number, flags in enumerate(CONNECTIONS):
        assert says(tools, "--redis-manage", str(number % 4), *flags) == "1\n"
    for number, flags in enumerate(CONNECTIONS):
        assert says(tools, "--managed", *flags) == f"There is 1 MANAGED GPUs, IDs: {number % 4}\n"
    # A GPU of two lists is idle in both or in none.
    job = bash(jobs, "a=$(GPU.py --get); GPU.py --idle --redis-prefix X; GPU.py --idle --redis-db 1")
    assert ready(job) == ["There is 0 IDDLE GPUs, IDs: ", "There is 1 IDDLE GPUs, IDs: 3"]
    says(tools, "--redis-delete")
    assert says(tools, "--managed", *CONNECTIONS[1]) == "There is 1 MANAGED GPUs, IDs: 1\n"


@pytest.mark.parametrize("before", [None, "delete"])
def test_get_before_anything_is_managed(tools, before):
    if before:
        says(tools, "--redis-manage-all")
        says(tools, "--redis-delete")
    assert_one_line_error(gpu_py(tools, "--get"), 69, "GPU.py --redis-manage-all")
    assert_one_line_error(gpu_py(tools, "--get", "--redis-prefix", "X"), 69, "--redis-manage-all")


def test_nothing_of_it_is_in_the_harbour(managed):
    says(managed, "--redis-manage", "1", "--force")
    findings = json.loads(managed.berth("doctor", "--json").stdout)["findings"]
    assert [one for one in findings if one["check"] == "planted" and one["level"] != "ok"] == []
    assert [path.name for path in managed.harbour.iterdir()] == []


# The lease is the shell's.

WAYS = {
    "substitution": "GPUID=$(GPU.py --get)",
    "backquotes": "GPUID=`GPU.py --get`",
    "process substitution": "read GPUID < <(GPU.py --get)",
    "pipe": "GPU.py --get | cat > id; GPUID=$(cat id)",
    "function": "f() { GPU.py --get; }; GPUID=$(f)",
    "subshells": "( (GPU.py --get > id; true); true); GPUID=$(cat id)",
}


@pytest.mark.parametrize("way", WAYS)
def test_the_subshell_trap_is_gone(managed, jobs, way):
    """However it is called: the lease is that of the shell, which lives, and no purge takes it away."""
    in_file = " id" in WAYS[way]  # any process can read the number there: this one has the GPU after the shell
    job = bash(jobs, f"{WAYS[way]}\necho $GPUID\nGPU.py --redis-purge\nGPU.py ---redis-purge", session=not in_file, cwd=managed.folder)
    assert ready(job) == ["0"] and job.err == ""
    [lease] = gpu(managed.status(), 0)["leases"]
    assert lease["pid"] == job.pid
    assert says(managed, "--redis-purge") == ""
    assert says(managed, "--idle") == "There is 3 IDDLE GPUs, IDs: 1,2,3\n"
    assert job.end() == 0
    if in_file:
        assert says(managed, "--release", "0") == "GPU 0 released.\n"
    eventually(lambda: state_of(managed, 0) == "free", "the end of the lease")


@pytest.mark.each_harbour
@pytest.mark.parametrize("kind", ["a file", "a link", "words"])
def test_the_harbour_is_that_of_the_program(tools, kind):
    """Also where it follows from BERTH_SIM alone: GPU.py's keeper watches the bells there."""
    # Words lead to a state that the whole host shares. No other test, and no other run, uses this memory size.
    sim = {"a file": "server.json", "a link": "./link.json", "words": f"1x{2**20 + os.getpid() % 2**20}MiB"}[kind]
    (tools.folder / "server.json").write_text('{"gpus": [{"memory": "24GiB"}]}')
    (tools.folder / "link.json").symlink_to("server.json")
    alone = {"BERTH_SIM": sim, "BERTH_SIM_STATE": None, "BERTH_DIR": None}
    code = "from berth.compat import _shared_folder; print(_shared_folder.harbour_path(), _shared_folder.folder_path())"
    paths = good(tools.run(PYTHON, "-c", code, env=alone, cwd=tools.folder)).split()
    harbour, folder = (pathlib.Path(path) for path in paths)
    try:
        command = ["sh", "-c", "echo $BERTH_LEASE; ls $0", harbour]
        lease, *names = good(tools.run(BUILD / "bin" / "berth", "run", "--", *command, env=alone, cwd=tools.folder)).split()
        assert f"bell-{lease}" in names
        assert folder == harbour.with_suffix(".compat")
    finally:
        for path in (harbour, folder):
            shutil.rmtree(path, ignore_errors=True)
        harbour.with_suffix("").unlink(missing_ok=True)


def test_a_killed_shell(managed, jobs):
    job = bash(jobs, "GPUID=$(GPU.py --get)")
    ready(job)
    assert state_of(managed, 0) == "leased"
    job.process.kill()
    eventually(lambda: says(managed, "--idle") == "There is 4 IDDLE GPUs, IDs: 0,1,2,3\n", "the end of the lease")


def test_a_process_that_is_named(managed, jobs):
    other = jobs.start("cat")
    assert says(managed, "--get", "--pid", other.pid) == "0\n"
    [lease] = gpu(managed.status(), 0)["leases"]
    assert lease["pid"] == other.pid
    other.end()
    eventually(lambda: state_of(managed, 0) == "free", "the end of the lease")


@pytest.mark.each_harbour
def test_get_waits_until_one_is_released(managed, jobs):
    managed.use("1x24GiB")
    says(managed, "--redis-manage-all", "--force")
    first = bash(jobs, "GPUID=$(GPU.py --get); echo $GPUID")
    assert ready(first) == ["0"]
    second = bash(jobs, "GPUID=$(GPU.py --get); echo $GPUID")
    eventually(lambda: len(json.loads(managed.berth("queue", "--json").stdout)["queue"]) == 1, "the waiting of the second")
    assert second.out == ""
    assert says(managed, "--release", "0") == "GPU 0 released.\n"
    assert ready(second) == ["0"]
    [lease] = gpu(managed.status(), 0)["leases"]
    assert lease["pid"] == second.pid


def test_release_by_the_script_itself_in_a_loop(managed, jobs):
    """As its users write it: get, compute, release; with the ID exported, which must not bind the next one to it."""
    managed.use("2x24GiB")
    says(managed, "--redis-manage-all", "--force")
    job = bash(jobs, "a=$(GPU.py --get); export CUDA_VISIBLE_DEVICES=$a; b=$(GPU.py --get); echo $a $b; "
                     "GPU.py --release $a; GPU.py --release $b; GPU.py --idle")
    assert ready(job) == ["0 1", "GPU 0 released.", "GPU 1 released.", "There is 2 IDDLE GPUs, IDs: 0,1"]


@pytest.mark.each_harbour
def test_never_the_same_id_twice(managed, jobs):
    """Many ask at once; whoever has a GPU has it alone, until it ends."""
    guard = "mkdir gpu$GPUID || echo twice; echo has $GPUID; read -r line; rmdir gpu$GPUID; GPU.py --release $GPUID"
    asking = [jobs.start("bash", "--norc", "-c", f"GPUID=$(GPU.py --get); {guard}", cwd=managed.folder, start_new_session=True)
              for _ in range(12)]
    holding = set()
    for _ in range(3):
        def four_more():
            return [job for job in asking if job not in holding and job.out.startswith("has")]
        eventually(lambda: len(four_more()) == 4, "four who have a GPU")
        now = four_more()
        assert sorted(job.out for job in now) == [f"has {index}\n" for index in range(4)]
        assert [one["state"] for one in managed.status()["gpus"]] == ["leased"] * 4
        for job in now:
            assert job.end() == 0
            assert job.out.splitlines()[1:] == [f"GPU {job.out[4]} released."]
        holding.update(now)
    assert says(managed, "--idle") == "There is 4 IDDLE GPUs, IDs: 0,1,2,3\n"


def test_what_others_use_is_not_idle(managed, jobs):
    """A stranger, and somebody who came by another way."""
    managed.start_job("--mem", "1GiB", gpu=0)
    jobs.hold("--gpu", "1")
    job = bash(jobs, "echo $(GPU.py --get)")
    assert ready(job) == ["2"]
    assert says(managed, "--idle") == "There is 1 IDDLE GPUs, IDs: 3\n"
    active = says(managed, "--active").splitlines()
    assert active[0] == "There is 3 ACTIVE GPUs, IDs: 0,1,2" and active[1] == "GPU 0 acquired by unknown process."


def test_what_is_not_the_shells_cannot_be_released(managed, jobs):
    holder = jobs.hold("--gpu", "1")
    result = gpu_py(managed, "--release", "1")
    assert_one_line_error(result, 64)
    assert holder.runs and state_of(managed, 1) == "leased"


def test_nothing_asked(tools):
    """As the original: not even a list is made."""
    for words in ([], ["--force"], ["--redis-prefix", "X"]):
        assert says(tools, *words) == ""
    assert not (tools.folder / "harbour.compat").exists()


def test_the_help_fits_a_terminal(tools):
    assert max(map(len, says(tools, "--help", env={"COLUMNS": "80"}).splitlines())) <= 80


def test_get_says_nothing_to_a_script(managed, jobs):
    """G=$(GPU.py --get 2>&1) has the number alone, also if it had to wait."""
    managed.use("1x24GiB")
    says(managed, "--redis-manage-all", "--force")
    first = bash(jobs, "GPUID=$(GPU.py --get)")
    ready(first)
    second = bash(jobs, 'G=$(GPU.py --get 2>&1); GPU.py --release "$G"')
    eventually(lambda: len(json.loads(managed.berth("queue", "--json").stdout)["queue"]) == 1, "the waiting of the second")
    assert first.end() == 0
    assert ready(second) == ["GPU 0 released."] and second.err == ""


def write_defaults(server, text):
    """The user's configuration."""
    (server.folder / ".config").mkdir()
    (server.folder / ".config" / "berth.toml").write_text(f"[defaults]\n{text}\n")


@pytest.mark.parametrize("memory", ["8GiB", "auto"])
def test_a_default_of_memory_does_not_share_the_gpu(managed, jobs, memory):
    write_defaults(managed, f'mem = "{memory}"')
    job = bash(jobs, "for i in 1 2 3 4; do GPU.py --get; done; GPU.py --idle")
    assert ready(job) == ["0", "1", "2", "3", "There is 0 IDDLE GPUs, IDs: "]
    assert [state_of(managed, one) for one in range(4)] == ["leased"] * 4


def test_a_lost_gpu_hides_no_other(tools, jobs):
    tools.use("3x24GiB")
    assert says(tools, "--redis-manage-all") == "3\n"
    tools.use({"gpus": [{"count": 3, "memory": "24GiB"}], "faults": [{"gpu": 0, "lost": True}]})
    uuid = gpu(tools.status(), 1)["uuid"]  # CUDA counts without the lost one, so that an index would mislead
    job = bash(jobs, "a=$(GPU.py --get); echo $a; GPU.py --idle; GPU.py --release $a; GPU.py --idle")
    assert ready(job) == [uuid, "There is 1 IDDLE GPUs, IDs: 2", f"GPU {uuid} released.",
                          "There is 2 IDDLE GPUs, IDs: 1,2"]


def test_mig_instances(tools, jobs):
    tools.use(SERVERS / "mig.json")
    says(tools, "--redis-manage", "0:2")
    uuid = gpu(tools.status(), "0:2")["uuid"]
    job = bash(jobs, "a=$(GPU.py --get); echo $a; GPU.py --release 0:2")
    assert ready(job) == [uuid, "GPU 0:2 released."]


def test_gpus_that_are_gone(managed):
    managed.use("2x24GiB")
    says(managed, "--redis-manage", "1", "--force")
    managed.use("1x24GiB")
    assert_one_line_error(gpu_py(managed, "--get"), 69, "(1)", "berth status")


# Several users, and what they may plant.

def as_nobody(server, *words):
    return server.run(*NOBODY, "GPU.py", *words)


@pytest.fixture
def everybody(tools, open_build):
    """A server whose programs every user can reach."""
    shutil.copytree(BUILD / "python", open_build / "python")
    (tools.folder / "scratch").mkdir()
    del tools.env["PYTHONPATH"]
    tools.env["PATH"] = f"{tools.folder / 'tools'}:{open_build / 'bin'}:/usr/bin:/bin"
    return tools


def test_root_releases_the_gpu_of_any_user(everybody, jobs):
    says(everybody, "--redis-manage-all")
    job = jobs.start(*NOBODY, "bash", "--norc", "-c", "a=$(GPU.py --get); echo $a; echo ready; read -r line; exit 0",
                     start_new_session=True)
    assert ready(job) == ["0"]
    other = jobs.start(*NOBODY, "bash", "--norc", "-c", "a=$(GPU.py --get); echo ready; read -r line; exit 0",
                     start_new_session=True)
    ready(other)
    assert says(everybody, "--release", "0") == "GPU 0 released.\n"
    assert [state_of(everybody, index) for index in (0, 1)] == ["free", "leased"]


def test_a_list_of_root(everybody):
    says(everybody, "--redis-manage-all")
    assert_one_line_error(as_nobody(everybody, "--redis-delete"), 77, "only root can")


def test_all_users_share_a_list(everybody):
    assert good(as_nobody(everybody, "--redis-manage", "1,2")) == "2\n"
    assert says(everybody, "--managed") == "There is 2 MANAGED GPUs, IDs: 1,2\n"
    folder = everybody.folder / "harbour.compat"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE(list_file(everybody).stat().st_mode) == 0o644
    assert says(everybody, "--redis-manage-all") == "Objects already initialized, add force to proceed.\n"
    assert says(everybody, "--redis-manage-all", "--force") == "4\n", "root may"


@pytest.mark.parametrize("words", [["--redis-manage", "0", "--force"], ["--redis-delete"]])
def test_another_users_list_stays_as_it_is(everybody, words):
    says(everybody, "--redis-manage-all")
    assert_one_line_error(as_nobody(everybody, *words), 77, "root")
    assert says(everybody, "--managed-gpu-count") == "4\n"
    assert good(as_nobody(everybody, "--redis-manage", "0", "--redis-prefix", "MINE")) == "1\n"


def test_to_force_what_is_there_already(everybody):
    """The document's remedy for everything: for who may not change the list, it is as he wants it."""
    says(everybody, "--redis-manage-all")
    assert good(as_nobody(everybody, "--redis-manage-all", "--force")) == "4\n"


@pytest.mark.each_harbour
def test_another_users_gpu_stays_his(everybody, jobs):
    says(everybody, "--redis-manage-all")
    job = bash(jobs, "GPUID=$(GPU.py --get)", env=everybody.env)
    ready(job)
    assert_one_line_error(as_nobody(everybody, "--release", "0"), 77)
    assert state_of(everybody, 0) == "leased"


def test_many_make_a_list_at_once(tools, jobs):
    calls = [jobs.start("GPU.py", "--redis-manage", str(number % 4)) for number in range(8)]
    assert [job.process.wait(LIMIT) for job in calls] == [0] * 8
    assert sorted(job.out for job in calls) == ["1\n"] + ["Objects already initialized, add force to proceed.\n"] * 7
    [winner] = [number % 4 for number, job in enumerate(calls) if job.out == "1\n"]
    assert says(tools, "--managed") == f"There is 1 MANAGED GPUs, IDs: {winner}\n"
    assert len(list((tools.folder / "harbour.compat").iterdir())) == 1, "nothing is left behind"


def test_many_force_at_once(managed, jobs):
    calls = [jobs.start("GPU.py", "--redis-manage", str(number % 4), "--force") for number in range(8)]
    assert [(job.process.wait(LIMIT), job.out) for job in calls] == [(0, "1\n")] * 8
    assert re.fullmatch(r"There is 1 MANAGED GPUs, IDs: [0-3]\n", says(managed, "--managed"))


def plant(path, how):
    path.unlink()
    if how == "symlink":
        path.symlink_to("/etc/passwd")
    elif how == "symlink to a list":
        (path.parent / "elsewhere").write_text('{"version": 1, "gpus": ["0"], "since_ms": 0}')
        path.symlink_to(path.parent / "elsewhere")
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "directory":
        path.mkdir()
    elif how == "huge":
        with open(path, "w") as file:
            file.truncate(1 << 40)
    else:
        path.write_bytes(how)


MALFORMED = [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100000, b'{"version": 1}',
             b'{"version": 2, "gpus": [], "since_ms": 0}', b'{"version": 1, "gpus": "0", "since_ms": 0}',
             b'{"version": 1, "gpus": [0], "since_ms": 0}',
             b'{"version": 1, "gpus": ["--all"], "since_ms": 0}', b'{"version": 1, "gpus": ["0"], "since_ms": 1e300}',
             b'{"version": 1, "gpus": ["0"], "since_ms": NaN}', b'{"version": 1, "gpus": ["0"], "since_ms": "x"}']


@pytest.mark.parametrize("how", ["symlink", "symlink to a list", "fifo", "directory", "huge", *MALFORMED])
def test_a_planted_list_is_ignored(managed, how):
    path = list_file(managed)
    plant(path, how)
    result = gpu_py(managed, "--managed")
    assert (result.returncode, result.stdout) == (0, "There is 0 MANAGED GPUs, IDs: \n")
    assert result.stderr.count("\n") == 1 and path.name in result.stderr
    # A new one takes its place, where that can be.
    result = gpu_py(managed, "--redis-manage", "2")
    if how == "directory":
        assert result.returncode == 74 and path.name in result.stderr
    else:
        assert (result.returncode, result.stdout) == (0, "1\n")
        assert says(managed, "--managed") == "There is 1 MANAGED GPUs, IDs: 2\n"
    assert pathlib.Path("/etc/passwd").stat().st_size > 0


def test_what_another_user_planted_is_in_the_way(everybody):
    says(everybody, "--redis-manage-all")
    path = list_file(everybody)
    path.unlink()
    path.write_text("planted")
    result = as_nobody(everybody, "--redis-manage-all")
    assert (result.returncode, result.stdout) == (77, "")
    assert path.name in result.stderr and "root" in result.stderr


@pytest.mark.parametrize("how", ["file", "symlink", "not sticky"])
def test_a_folder_that_cannot_be_used(tools, how):
    folder = tools.folder / "harbour.compat"
    if how == "file":
        folder.touch()
    elif how == "symlink":
        (tools.folder / "real").mkdir()
        folder.symlink_to(tools.folder / "real")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    for words in (["--redis-manage-all"], ["--managed"], ["--get"]):
        assert_one_line_error(gpu_py(tools, *words), 74, "harbour.compat")


def test_planted_events(managed, jobs):
    ready(bash(jobs, "a=$(GPU.py --get); GPU.py --release $a"))
    before = says(managed, "--log")
    [own] = (managed.folder / "harbour.compat").glob("gpuget-events-*")
    with open(own, "a") as file:
        file.write("2099-01-01 00:00:00: GPU 0 acquired by PID \033[31m7.\nnonsense\n")
    os.chown(own, 0, -1)
    other = own.with_name(f"{own.name}9")
    other.write_text("2099-01-01 00:00:00: GPU 0 acquired by PID 7.\n")  # whose name says another uid
    result = gpu_py(managed, "--log")
    assert (result.returncode, result.stdout) == (0, before)
    assert result.stderr.count("\n") == 2 and "\033" not in result.stderr


def test_events_from_before_the_list_are_not_shown(managed, jobs):
    job = bash(jobs, "a=$(GPU.py --get); GPU.py --release $a")
    ready(job)
    [own] = (managed.folder / "harbour.compat").glob("gpuget-events-*")
    own.write_text("2001-01-01 00:00:00: GPU 0 released by PID 7.\n" + own.read_text())
    said = says(managed, "--log")
    assert f"GPU 0 released by PID {job.pid}." in said and "2001" not in said


def test_events_that_cannot_be_written_do_not_matter(managed, jobs):
    ready(bash(jobs, "a=$(GPU.py --get); GPU.py --release $a"))
    [own] = (managed.folder / "harbour.compat").glob("gpuget-events-*")
    own.unlink()
    own.mkdir()
    job = bash(jobs, "a=$(GPU.py --get); GPU.py --release $a")
    assert ready(job) == ["GPU 0 released."]
    assert "log" in job.err
    assert state_of(managed, 0) == "free"


# Bad input.

@pytest.mark.parametrize("words", [
    ["--frob"], ["0"], ["--release"], ["--release", "x"], ["--release", "-1"], ["--release", "1.5"],
    ["--release", ""], ["--release", "99999999999999999999"], ["--release", "GPU-"], ["--release", "GPU-1\n"],
    ["--redis-manage", ""], ["--redis-manage", "0,,1"], ["--redis-manage", "0;1"], ["--redis-manage", "\033[31m"],
    ["--redis-manage-count", "0"], ["--redis-manage-count", "-1"], ["--redis-manage-count", "x"],
    ["--redis-port", "x", "--get"], ["--redis-db", "", "--get"], ["--get", "--pid", "0"],
    ["--redis-manage-all", "--redis-manage", "0"]])
def test_wrong_words(tools, words):
    assert_one_line_error(gpu_py(tools, *words), 64, "GPU.py")
    assert not (tools.folder / "harbour.compat").exists()


def test_gpus_that_are_not_there(tools):
    assert_one_line_error(gpu_py(tools, "--redis-manage", "8,9"), 69, "berth status")


def test_no_such_process(managed):
    assert_one_line_error(gpu_py(managed, "--get", "--pid", "4194303"), 64, "4194303")


def test_a_server_that_is_not_there(tools):
    assert_one_line_error(gpu_py(tools, "--gpu-count", env={"BERTH_SIM": "/no/such/server.json"}), 64)


def test_output_that_nobody_takes(managed):
    result = managed.run("sh", "-c", "GPU.py --managed > /dev/full")
    assert_one_line_error(result, 74, "No space left")
    result = managed.run("sh", "-c", "GPU.py --get > /dev/full")
    assert result.returncode == 74
    eventually(lambda: state_of(managed, 0) == "free", "the GPU, which was never delivered")
