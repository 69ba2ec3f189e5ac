"""Every command in README.md is run, and what it prints is what README.md shows."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import BERTH, BUILD, ROOT, SIM_JOB, wait_until
from documents import console_blocks, run_sessions, same
from serving import serve  # noqa: F401
from waiting import LIMIT, LONG_LIMIT

README = (ROOT / "README.md").read_text()
pytestmark = pytest.mark.release_only


@pytest.mark.release_build
def test_the_example_prints_what_readme_shows(server):
    (server.folder / "build").symlink_to(ROOT / "build")
    [session] = [steps for steps in console_blocks(README) if len(steps) > 1]
    run_sessions(session, server.env, server.folder)


def python_that_uses_gpus(folder):
    """A python of which only the name is true: its program and its process use simulated GPUs."""
    for name in ("shims", "real/bin"):
        (folder / name).mkdir(parents=True)
    (folder / "real/lib").symlink_to(BUILD / "lib")
    shutil.copy(SIM_JOB, folder / "real/bin/python")
    shim = folder / "shims/python"
    shim.write_text(f'#!/bin/sh\nexec {folder}/real/bin/python --mem "$SIM_MEM" --util "$SIM_UTIL" --time 1h\n')
    shim.chmod(0o755)
    return {"PATH": f"{folder}/shims:{BUILD}/bin:{os.environ['PATH']}"}


def test_the_sample_of_status_is_what_it_prints(server):
    """On three simulated cards, with jobs of one user in place of several users' jobs."""
    [[step]] = [steps for steps in console_blocks(README) if steps[0].command == "berth status"]
    server.use({"gpus": [{"name": "NVIDIA GeForce RTX 4090", "memory": "24GiB", "count": 3}]})
    env = python_that_uses_gpus(server.folder)
    jobs = [(("--gpu", "0", "--time", "4h", "--label", "vision"), "train.py", "18GiB", "96"),
            (("--gpu", "1", "--mem", "8GiB", "--label", "eval"), "eval.py", "7GiB", "30"),
            (("--gpu", "1", "--mem", "10GiB"), "demo.py", "9GiB", "40")]
    for request, script, memory, load in jobs:
        server.start_job(script, prefix=(BERTH, "run", *request, "--"), program="python",
                         env={**env, "SIM_MEM": memory, "SIM_UTIL": load})
    server.start_job("sweep.py", gpu=2, program="python", env={**env, "SIM_MEM": "11GiB", "SIM_UTIL": "60"})
    server.start(BERTH, "run", "--time", "2h", "--label", "llm", "--", "python", "pretrain.py", env=env)
    wait_until(lambda: server.status()["queue"])
    printed = server.berth("status").stdout
    assert same(step, [printed]), printed


@pytest.mark.release_build
def test_dev_run_shows_a_demonstration_on_a_simulated_server():
    env = {**os.environ, "LANG": "C.UTF-8", "BERTH_STORY_PAUSE": "0"}
    for name in ("BERTH_SIM", "BERTH_SIM_STATE", "BERTH_DIR"):
        env.pop(name, None)
    result = subprocess.run(["./dev", "run"], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, timeout=LONG_LIMIT)
    assert result.returncode == 0, result
    for part in ("no NVIDIA driver", "simulated server", "2 GPUs: 2 leased", "Queue: 1 waiting", "1 stranger",
                 "(exit code 75)"):
        assert part in result.stdout, part
    assert "uses 9 GiB without a lease" in result.stderr


def table_commands():
    commands = re.findall(r"^\| `(berth [^`]+)`", README, re.MULTILINE)
    assert len(commands) >= 12
    return commands


@pytest.mark.parametrize("command", table_commands())
def test_every_command_of_the_table_works(server, command):
    serving = command == "berth serve"
    watching = serving or "--watch" in command or command == "berth top"  # until it is stopped: timeout's 124
    if command == "berth top":  # on a terminal
        command = "script --quiet --return --command 'berth top' /dev/null"
    holder = server.start(BERTH, "run", "-n", "4", "--", "sleep", "1h") if "TICKET" in command else None
    if holder:
        wait_until(lambda: server.status()["gpus"][3]["leases"])
        waiter = server.start(BERTH, "run", "--", "true")
        wait_until(lambda: server.status()["queue"])
        command = command.replace("TICKET", server.status()["queue"][0]["ticket"])
    if command.endswith(" ID"):
        command = command.replace("ID", server.berth("run", "-d", "--", "echo", "done").stdout.strip())
    process = server.start_job("--mem", "1GiB") if command.endswith(" PID") else None
    if process:
        command = command.replace("PID", str(process.pid))
    command = command.replace("COMMAND", "status").replace("CMD", "echo done").replace("GPU", "0")
    command = command.replace("NAME", "grn-run --help")
    command += " --port 0" if serving else ""  # others may serve here
    (server.folder / "FILE").write_text("true\n")
    python = os.path.dirname(sys.executable)  # the one that the package was built for
    result = server.run("bash", "--norc", "-c", ("timeout 1 " if watching else "") + command + "; exit $?",
                        env={"PATH": f"{python}:{server.env['PATH']}"}, cwd=server.folder)
    assert result.returncode == (124 if watching else 0), result
    assert result.stdout or result.stderr or command.startswith("berth wait")
    if process:
        process.kill()
    # The shell's lease ends with the shell, a moment later. (With a command alone, bash would become
    # that command, and the lease be this process's.)
    wait_until(lambda: holder or not list(server.harbour.glob("lease-*")))
    if holder:
        assert waiter.wait(LIMIT) == 75


def block_under(heading):
    """The lines for a shell in that section."""
    [section] = re.findall(rf"^## {heading}\n(.*?)^## ", README, re.DOTALL | re.MULTILINE)
    [block] = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return block


def test_the_lines_for_sharing_work(server):
    (server.folder / "python").write_text('#!/bin/sh\nexec berth-sim-job --quiet --mem 2GiB --time 300ms\n')
    (server.folder / "python").chmod(0o755)
    result = server.run("bash", "--norc", "-ec", block_under("Sharing a GPU"), cwd=server.folder,
                        env={"PATH": f"{server.folder}:{server.env['PATH']}"})
    assert (result.returncode, result.stderr) == (0, "")
    # If the machine is busy, the peak of a run may be measured a little too low, or not at all.
    assert re.search(r"^root +[12] .* 2\.[12] GiB ", result.stdout, re.MULTILINE) and result.stdout.startswith("USER")


def test_the_lines_for_scripts_work(server):
    """With stand-ins for the programs that they run, which say what they see."""
    block = block_under("In scripts, shells and containers")
    programs = server.folder / "programs"
    programs.mkdir()
    for name in ("torchrun", "docker", "simulate", "python"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} \"$@\" on $CUDA_VISIBLE_DEVICES\n")
        (programs / name).chmod(0o755)
    script = block + "echo read $GPU\n"
    env = {**server.env, "PATH": f"{programs}:{server.env['PATH']}"}
    result = subprocess.run(["bash", "--norc", "-ec", script], env=env, cwd=programs, timeout=LIMIT,
                            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert result.returncode == 0, result
    lines = result.stdout.splitlines()
    assert lines[0].startswith("torchrun --nproc-per-node 2 train.py on 0,1")
    assert lines[1] == "simulate --device 0 on 0"
    assert lines[2] == "docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES IMAGE on 0"
    assert re.fullmatch(r'docker run --gpus "device=GPU-[0-9a-f-]{36}" IMAGE on', lines[3])
    assert lines[4:] == ["python train.py on 0", "read 0"], "each line has given back what it took"
    wait_until(lambda: not list(server.harbour.glob("lease-*")))


def test_the_lines_for_seeing_it_work(server, serve):
    first, *others = block_under("See it").splitlines()
    assert first.split("#")[0].split() == ["berth", "serve"]
    port = serve().port
    for line in others:
        result = server.run("bash", "--norc", "-ec", line.replace("8417", str(port)))
        assert result.returncode == 0, result
        assert any(word in result.stdout for word in ('"hosts"', "berth_gpu_state{", "ExecStart=")), line


def test_a_batch_as_readme_has_it(server):
    [block] = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    python = server.folder / "python"
    python.write_text("#!/bin/sh\necho \"$@\" on $CUDA_VISIBLE_DEVICES\n")
    python.chmod(0o755)
    result = server.run("bash", "--norc", "-ec", block, cwd=server.folder, timeout=LONG_LIMIT,
                        env={"PATH": f"{server.folder}:{server.env['PATH']}"})
    assert result.returncode == 0, result
    first, second = result.stdout.splitlines()
    assert re.match(r"150 succeeded, 0 failed ", first), first
    assert re.match(r"0 succeeded \(.*\b150\b.*\), 0 failed ", second), second
    logs = [path.read_text() for path in sorted((server.folder / "jobs.logs").glob("*.log"))]
    assert [re.fullmatch(r"train.py --seed (\d+) on [0-3]\n", log)[1] for log in logs] == [str(n) for n in range(1, 151)]


def test_every_link_leads_somewhere():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
