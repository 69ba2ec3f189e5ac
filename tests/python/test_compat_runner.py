"""`python -m berth.compat SCRIPT` runs a script as Python would, with berth's modules; `berth compat` finds one."""

import json
import os
import pathlib
import shutil
import signal
import sys

import pytest
from conftest import BERTH, assert_one_line_error
from leasing import jobs  # noqa: F401
from compat_tools import PACKAGES, PYTHON, compat, good, python_in_path, script, tools  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only

SHIM = pathlib.Path(PACKAGES) / "berth" / "compat" / "_shim"
SERVED = ["safe_gpu", "safe_gpu.safe_gpu", "gpu_lock", "gpuselect", "grn"]

# Whatever a script can see of how it was started.
PROBE = """\
import __main__, json, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"),
    "executable": sys.executable, "unbuffered": sys.stdout.write_through,
    "spec": __main__.__spec__ and __main__.__spec__.name, "package": __package__, "flags": list(sys.flags),
    "warnings": sys.warnoptions, "stdin": sys.stdin.read(), "cached": globals().get("__cached__"),
}))
"""


def forms(server):
    """The ways in which Python takes a program."""
    file = script(server, "probe.py", PROBE)
    folder = file.parent / "folder"
    folder.mkdir()
    (folder / "__main__.py").write_text(PROBE)
    return {"script": [file, "one", "-two", "--", ""], "relative": ["scripts/probe.py"], "folder": [folder],
            "module": ["-m", "probe", "-x"], "glued": ["-mprobe"], "code": ["-c", PROBE, "-c", "more"]}


@pytest.mark.parametrize("form", ["script", "relative", "folder", "module", "glued", "code"])
@pytest.mark.parametrize("flags", [[], ["-u"], ["-O", "-W", "error::UserWarning", "-B"]])
def test_a_script_sees_what_it_would_see_without(tools, form, flags):
    words = forms(tools)[form]
    tools.env["PYTHONPATH"] += f":{tools.folder / 'scripts'}"
    plain = good(tools.run(PYTHON, *flags, *words, cwd=tools.folder))
    assert json.loads(plain)["argv"], "the probe says something"
    assert good(tools.run(PYTHON, *flags, "-m", "berth.compat", *words, cwd=tools.folder)) == plain


def test_a_script_from_stdin(tools):
    code = "import grn, sys; print(grn.__name__, sys.argv)"
    result = tools.run("sh", "-c", f"echo '{code}' | {PYTHON} -m berth.compat - x")
    assert good(result) == "berth.compat.grn ['-', 'x']\n"


def test_a_child_of_another_python_is_told_which_it_needs(tools):
    """The package is built for one version; a script may start another one, which inherits PYTHONPATH."""
    copy = tools.folder / "copy"
    shutil.copytree(f"{PACKAGES}/berth", copy / "berth")
    [library] = (copy / "berth").glob("_native.*.so")
    library.rename(library.with_name("_native.cpython-399-x86_64-linux-gnu.so"))
    result = tools.run(PYTHON, "-c", "import grn", env={"PYTHONPATH": str(copy / "berth" / "compat" / "_shim")})
    assert result.returncode == 1
    [line] = [line for line in result.stderr.splitlines() if "Error" in line]
    for part in ("ImportError", "grn", f"Python 3.{sys.version_info[1]}", PYTHON, "built for Python 3.99"):
        assert part in line, line


@pytest.mark.parametrize("line", ["raise SystemExit(7)", "raise SystemExit('a text')", "def f(): 1 / 0\nf()",
                                  "what is this", "import no_such_module", "print('fine')", "import os; os._exit(3)",
                                  "import os; os.kill(os.getpid(), 9)"])
def test_how_it_ends_is_passed_on(tools, line):
    file = script(tools, "end.py", line)
    plain = tools.run(PYTHON, file)
    result = compat(tools, file)
    assert (result.returncode, result.stdout, result.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_it_is_the_same_process(tools, jobs):
    """So that signals, and whoever waits for it, meet the script itself."""
    file = script(tools, "stay.py", "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()")
    job = jobs.start(PYTHON, "-m", "berth.compat", file)
    assert job.gpus() == str(job.pid)
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(LIMIT) == -signal.SIGTERM


def plant_originals(tools):
    """What must not be imported: beside the script, and installed."""
    for folder in (tools.folder / "modules", tools.folder / "scripts"):
        folder.mkdir(exist_ok=True)
        for name in ("gpu_lock", "gpuselect", "grn"):
            (folder / f"{name}.py").write_text("raise RuntimeError('the original')")
        (folder / "safe_gpu").mkdir()
        (folder / "safe_gpu" / "__init__.py").write_text("raise RuntimeError('the original')")


@pytest.mark.parametrize("name", SERVED)
def test_the_modules_are_berths(tools, name):
    plant_originals(tools)
    file = script(tools, "imports.py", f"import sys\nimport {name}\nimport berth.compat.{name}\n"
                  f"assert sys.modules['{name}'] is sys.modules['berth.compat.{name}']\nprint({name}.__name__)\n")
    assert tools.run(PYTHON, file).returncode == 1, "the original would be found"
    assert good(compat(tools, file)) == f"berth.compat.{name}\n"


def test_from_imports_and_reload(tools):
    plant_originals(tools)
    file = script(tools, "imports.py", "import importlib, berth.compat.grn\nfrom safe_gpu import safe_gpu\nimport grn\n"
                  "from grn import job\nfrom gpu_lock import lock_gpu\nfrom gpuselect import gpuselect\n"
                  "assert importlib.reload(grn) is grn is berth.compat.grn\nprint(safe_gpu.__name__)\n")
    assert good(compat(tools, file)) == "berth.compat.safe_gpu.safe_gpu\n"


@pytest.mark.parametrize("name", ["grn.no_such_part", "grn.core.gpu_master"])
def test_a_submodule_that_there_is_not(tools, name):
    result = compat(tools, "-c", f"import {name}")
    assert (result.returncode, result.stderr.splitlines()[-1]) == (1, f"ModuleNotFoundError: No module named '{name}'")


def test_without_the_runner_nothing_is_changed(tools):
    result = tools.run(PYTHON, "-c", "import berth, berth.compat.grn\nimport grn")
    assert "No module named 'grn'" in result.stderr


CHILDREN = """\
import multiprocessing, os, sys
import grn

@grn.job()
def work(number):
    return number, grn.__name__, os.environ["CUDA_VISIBLE_DEVICES"]

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print(sorted(pool.map(work, range(4))))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing(tools, method):
    plant_originals(tools)
    tools.use("1x24GiB")
    file = script(tools, "children.py", CHILDREN)
    result = compat(tools, file, method)  # on stderr it tells who waits, and for what
    answers = [(number, "berth.compat.grn", "0") for number in range(4)]
    assert (result.returncode, result.stdout) == (0, f"{answers}\n"), result.stderr


@pytest.mark.parametrize("way", ["subprocess.run([sys.executable, '-c', CODE])",
                                 "subprocess.run(f'{sys.executable} -c \"{CODE}\"', shell=True)",
                                 "os.execv(sys.executable, ['python', '-c', CODE])"])
def test_pythons_that_the_script_starts(tools, way):
    plant_originals(tools)
    code = "CODE = 'import grn; print(grn.__name__)'"
    file = script(tools, "nested.py", f"import os, subprocess, sys\n{code}\n{way}\n")
    assert good(compat(tools, file)) == "berth.compat.grn\n"


def test_a_python_that_does_not_know_the_package_finds_it(tools):
    """It was there only because one stood beside it."""
    del tools.env["PYTHONPATH"]
    code = "import os, subprocess, sys; os.chdir('/'); " \
           "subprocess.run([sys.executable, '-c', 'import grn; print(grn.__name__)'])"
    assert good(compat(tools, "-c", code, cwd=PACKAGES)) == "berth.compat.grn\n"


def test_a_runner_inside_a_runner(tools):
    code = "import os, sys; os.execv(sys.executable, ['python', '-m', 'berth.compat', '-c', " \
           "'import grn, os; print(os.environ[\"PYTHONPATH\"].count(\"_shim\"))'])"
    assert good(compat(tools, "-c", code)) == "1\n"


@pytest.mark.parametrize("path", [":{}", "{}:", "{}::{}", ":"])
def test_an_empty_entry_of_the_path_is_the_current_folder(tools, path):
    project = tools.folder / "project"
    (project / "tools").mkdir(parents=True)
    (project / "mylib.py").write_text("print('found')")
    (project / "tools" / "run.py").write_text("import json, mylib, sys\nprint(json.dumps(sys.path))")
    env = {"PYTHONPATH": path.format(PACKAGES, tools.folder / "modules")}
    plain = good(tools.run(PYTHON, "tools/run.py", env=env, cwd=project))
    env["PYTHONPATH"] += f":{PACKAGES}" if path == ":" else ""
    said = good(tools.run(PYTHON, "-m", "berth.compat", "tools/run.py", env=env, cwd=project)).splitlines()
    assert said[0] == "found"
    assert [one for one in json.loads(said[1]) if one != str(PACKAGES)] == [
        one for one in json.loads(plain.splitlines()[1]) if one != str(PACKAGES)]


def test_modules_inside_of_the_originals(tools):
    for name in ("gpu_lock.gpu_lock", "gpuselect.nvmlgpuselect", "grn.core.job"):
        whole = name.partition(".")[0]
        assert good(compat(tools, "-c", f"import {whole}, {name}; print({name} is {whole})")) == "True\n"


@pytest.mark.parametrize("name", ["gpuselect", "gpuselect.nvmlgpuselect"])
def test_a_tools_module_as_the_program(tools, name):
    result = compat(tools, "-m", name, "-c", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert len(good(result).split(",")) == 2


def test_an_old_python(tools):
    """It gets no error from sitecustomize, and not the original modules either. (There is none here: this one says that it is.)"""
    (tools.folder / "modules" / "grn.py").write_text("print('the original')")
    code = f"""
import sys
sys.version_info = (2, 7, 18, "final", 0)
sys.path.insert(0, {str(SHIM)!r})
import sitecustomize
assert {str(SHIM)!r} not in sys.path
import json
try:
    import grn
except ImportError as error:
    print(error)
"""
    said = good(tools.run(PYTHON, "-S", "-c", code))
    assert "grn" in said and "Python 2.7" in said


def test_another_sitecustomize_still_runs(tools):
    (tools.folder / "modules" / "sitecustomize.py").write_text("import builtins\nbuiltins.hidden = __name__\n")
    code = "import grn, sitecustomize; print(hidden, sitecustomize.__file__)"
    assert good(compat(tools, "-c", code)) == f"sitecustomize {tools.folder / 'modules' / 'sitecustomize.py'}\n"


@pytest.mark.parametrize("words", [[], ["-u", "x.py"], ["--frob"], ["-I", "x.py"]])
def test_wrong_words(tools, words):
    assert_one_line_error(compat(tools, *words), 64, "compat", "--help")


@pytest.mark.parametrize("flag", ["-E", "-I", "-S"])
def test_flags_that_would_keep_berth_out(tools, flag):
    """Rather no script than one with the original modules."""
    code = f"import runpy, sys; sys.path.insert(0, '{PACKAGES}'); sys.argv = ['x', '-c', 'print(1)']; " \
           "runpy.run_module('berth.compat', run_name='__main__')"
    assert_one_line_error(tools.run(PYTHON, flag, "-c", code), 64, flag)


def test_help(tools):
    assert "SCRIPT [ARGS" in good(compat(tools, "--help"))


def test_a_script_that_is_not_there(tools):
    plain = tools.run(PYTHON, "no-such.py")
    result = compat(tools, "no-such.py")
    assert (result.returncode, result.stderr) == (plain.returncode, plain.stderr) and result.returncode == 2


def test_the_runner_touches_no_driver_and_no_package(tools):
    """A Python below a script starts as fast as without."""
    code = "import sys; print([name for name in sys.modules if name.startswith('berth') or name == 'typing'])"
    assert good(compat(tools, "-c", code, env={"BERTH_SIM": "no such server"})) == "[]\n"


# berth compat NAME

def installed(server, python=None):
    """A berth of its own in a folder, with a python3 beside it that is this shell script."""
    folder = server.folder / "prefix" / "bin"
    folder.mkdir(parents=True)
    shutil.copy(BERTH, folder / "berth")
    if python is not None:
        (folder / "python3").write_text(f"#!/bin/sh\n{python}\n")
        (folder / "python3").chmod(0o755)
    return folder / "berth"


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_list_of_commands(server, words):
    text = good(server.berth("compat", *words))
    for name in ("gpuselect", "gpuget", "GPU.py", "grn-start", "grn-run"):
        assert f"  {name} " in text


@pytest.mark.parametrize("words", [["nonesuch"], ["nonesuch", "--help"], [""], ["gpuge"], ["GPU.PY"],
                                   ["--frob", "gpuget"]])
def test_a_command_that_there_is_not(server, words):
    assert_one_line_error(server.berth("compat", *words), 64, "compat")


@pytest.mark.parametrize("name", ["gpuselect", "gpuget", "GPU.py", "grn-start", "grn-run"])
def test_the_help_is_the_commands_own(server, name):
    text = good(server.berth("compat", name, "--help"))
    assert "berth compat" not in text.splitlines()[0] and "usage" in text.lower()


def test_it_becomes_the_python_beside_it(server, jobs):
    """In the same process, with the same parent; and every word behind the name is the command's."""
    berth = installed(server, 'echo "$$ $PPID"; shift 2; printf "<%s>" "$@"; echo')
    words = ["--help", "-n", "--", "", "a b", "--print=x", "[1,2]"]
    job = jobs.start(berth, "compat", "gpuselect", *words)
    assert job.process.wait(LIMIT) == 0
    assert job.out.splitlines() == [f"{job.pid} {os.getpid()}", "".join(f"<{word}>" for word in ["gpuselect", *words])]


def test_else_the_one_of_the_path(server):
    berth = installed(server)
    other = server.folder / "other"
    other.mkdir()
    (other / "python3").write_text("#!/bin/sh\necho found\n")
    (other / "python3").chmod(0o755)
    assert good(server.run(berth, "compat", "gpuget", env={"PATH": f"{other}:/usr/bin:/bin"})) == "found\n"


def test_in_a_build_tree_the_package_beside_it_comes_first(server):
    berth = installed(server, 'echo "$PYTHONPATH"')
    run = lambda **env: good(server.run(berth, "compat", "gpuget", env=env))  # noqa: E731
    assert run() == "\n" and run(PYTHONPATH="/a:/b") == "/a:/b\n"
    package = server.folder / "prefix" / "python"
    (package / "berth").mkdir(parents=True)
    (package / "berth" / "__init__.py").touch()
    assert run() == f"{package}\n" and run(PYTHONPATH="") == f"{package}\n"
    assert run(PYTHONPATH="/a:/b") == f"{package}:/a:/b\n"


def test_no_python(server):
    berth = installed(server)
    result = server.run(berth, "compat", "gpuget", "--get", env={"PATH": str(server.folder)})
    assert_one_line_error(result, 127, "python3", "PATH")


def test_a_python_without_the_package(server):
    berth = installed(server, f'exec {PYTHON} "$@"')
    for name in ("gpuselect", "gpuget", "grn-run"):
        result = server.run(berth, "compat", name, env={"PYTHONPATH": None})
        assert_one_line_error(result, 127, "package", "install")


def test_a_python_of_another_version(server):
    """The package is there, but was built for another Python."""
    package = server.folder / "modules" / "berth"
    shutil.copytree(f"{PACKAGES}/berth", package)
    [library] = package.glob("_native.*.so")
    library.rename(library.with_name("_native.cpython-399-x86_64-linux-gnu.so"))
    berth = installed(server, f'exec {PYTHON} "$@"')
    result = server.run(berth, "compat", "GPU.py", "--info", env={"PYTHONPATH": str(package.parent)})
    assert_one_line_error(result, 127, f"Python 3.{sys.version_info[1]}", "built for 3.99", "PATH")


def test_another_package_of_that_name(server):
    berth = installed(server, f'exec {PYTHON} "$@"')
    (server.folder / "berth.py").write_text("")
    result = server.run(berth, "compat", "gpuget", env={"PYTHONPATH": str(server.folder)})
    assert_one_line_error(result, 127, "package", "install")


def test_a_package_that_lacks_something_else(server):
    """That is not said to be missing which is there."""
    package = server.folder / "modules" / "berth" / "compat"
    package.mkdir(parents=True)
    (package / "gpuget.py").write_text("import nonesuch")
    berth = installed(server, f'exec {PYTHON} "$@"')
    result = server.run(berth, "compat", "gpuget", env={"PYTHONPATH": str(server.folder / "modules")})
    assert result.returncode == 1 and result.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'nonesuch'"


def test_nothing_is_imported_from_the_folder_that_one_is_in(server):
    for name in ("berth.py", "argparse.py"):
        (server.folder / name).write_text("raise RuntimeError('planted')")
    assert good(server.berth("compat", "gpuget", "--gpu-count", cwd=server.folder)) == "4\n"


def test_the_exit_code_is_the_commands(server):
    assert server.berth("compat", "gpuget", "--get").returncode == 69
    assert server.berth("compat", "gpuget", "--frob").returncode == 64
