"""The package as it is given to people: its examples, its types, and the wheel in an empty environment."""

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT, wait_until
from documents import console_blocks, run_sessions
from pythons import PACKAGE, all_free, python  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only

DOCTESTS = """
    import doctest, importlib, os, pkgutil
    names = ["berth"] + ["berth." + module.name for module in pkgutil.iter_modules(berth.__path__)
                         if module.name.startswith("_") and module.name not in ("_native", "_attach")]
    tried = 0
    for name in names:
        result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
        assert result.failed == 0, name
        tried += result.attempted
    say(tried)
"""


def test_the_examples_of_the_docstrings(python):
    python.server.use("2x24GiB")
    assert int(python.says(DOCTESTS)) >= 25


LAB = {"gpus": [{"name": "NVIDIA GeForce RTX 3090", "memory": "24GiB", "count": 4},
                {"name": "NVIDIA RTX A6000", "memory": "48GiB", "count": 2}]}


@pytest.mark.parametrize("document", ["README.md", "docs/python.md"])
def test_the_example_of_the_documents(python, document):
    """With a train.py that says what it sees."""
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    python.server.use(LAB)
    (python.server.folder / "train.py").write_text("import os; print('trained on', os.environ['BERTH_GPUS'])\n")
    programs = python.server.folder / "programs"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    said = python.says(example + "\nassert train(0.1) is None if 'train' in globals() else evaluate('x') is None\n",
                       env={"PATH": f"{programs}:{python.server.env['PATH']}"}).splitlines()
    assert any(line.startswith("trained on ") for line in said), said
    assert "[0, 1]" in said or any(line.count("name='NVIDIA RTX A6000'") == 2 for line in said), said


def test_the_scripts_of_the_document_print_what_it_shows(python):
    """Console examples that show a script with `cat` and then run it."""
    blocks = [steps for steps in console_blocks((ROOT / "docs/python.md").read_text()) if steps[0].command.startswith("cat ")]
    assert len(blocks) == 2
    programs = python.server.folder / "programs"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    env = {**python.server.env, **python.env, "PATH": f"{programs}:{python.server.env['PATH']}"}
    for steps in blocks:
        (python.server.folder / steps[0].command.split()[1]).write_text("\n".join(steps[0].expected) + "\n")
        run_sessions(steps, env, python.server.folder)


def test_the_commands_that_readme_has_for_older_tools(python):
    """`python -m berth.compat train.py`, and GPU.py."""
    [runner, command] = re.findall(r"`((?:python -m )?berth[ .]compat [^`N]+)`", (ROOT / "README.md").read_text())
    (python.server.folder / "train.py").write_text("from gpuselect import gpuselect\nprint('on', gpuselect())\n")
    where = f"{os.path.dirname(sys.executable)}:{python.server.env['PATH']}"
    script = f"cd {python.server.folder}\n{runner}\nberth compat GPU.py --redis-manage-all >/dev/null\n{command}\n" \
             "berth release --all >/dev/null\n"
    result = python.server.run("bash", "--norc", "-ec", script, env={**python.env, "PATH": where})
    assert result.returncode == 0, result
    assert re.fullmatch(r"on \d\n\d\n", result.stdout), result
    wait_until(lambda: all_free(python.server))


def test_every_public_name_has_a_docstring_and_is_found(python):
    said = python.says("""
        import inspect
        for name in berth.__all__:
            value = getattr(berth, name)
            assert inspect.getdoc(value), name
            assert name in dir(berth)
        try:
            berth.nonsense
        except AttributeError as problem:
            say(problem)
    """)
    assert said == "module 'berth' has no attribute 'nonsense'"


def test_the_types_hold():
    """Of the package itself, and for who uses it."""
    result = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_the_types_help_who_uses_it(tmp_path):
    (tmp_path / "user.py").write_text(
        "import berth\n"
        "with berth.gpus(2, name='A6000', timeout='10m') as lease:\n"
        "    reveal_type(lease.gpus[0].memory_used_mib)\n"
        "berth.acquire(memory='8GiB')\n"
        "berth.acquire(selector=lambda gpu: gpu.nonsense)\n"
        "@berth.job(mem='auto')\n"
        "def train(lr: float) -> int: return 1\n"
        "reveal_type(train(0.1))\n"
        "reveal_type(berth.Executor(mem='8GiB', max_workers=2).submit(len, 'text').result())\n"
        "berth.Executor().submit(len, 1)\n"
        "work = berth.submit(['true'], after=berth.jobs())\n"
        "reveal_type(work.logs(follow=True))\n"
        "reveal_type(work.wait(timeout='1h'))\n")
    result = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "user.py"],
                            cwd=tmp_path, env={**os.environ, "MYPYPATH": str(PACKAGE)}, capture_output=True, text=True)
    assert 'Revealed type is "builtins.int | None"' in result.stdout or "Union[builtins.int, None]" in result.stdout
    assert 'Unexpected keyword argument "memory"' in result.stdout
    assert '"Gpu" has no attribute "nonsense"' in result.stdout
    assert 'Revealed type is "builtins.int"' in result.stdout
    assert 'Revealed type is "typing.Iterator[builtins.str]"' in result.stdout
    assert 'incompatible type "int"; expected "Sized"' in result.stdout
    assert result.stdout.count('Revealed type is "builtins.int"') == 3
    assert "Found 3 errors" in result.stdout, result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An empty virtual environment, into which the wheel was installed; ./dev test has built it."""
    folder = tmp_path_factory.mktemp("installed")
    [wheel] = (ROOT / "build" / "wheels").glob("berth-*.whl")
    subprocess.run(["/usr/bin/python3", "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel],
                   check=True)
    return folder


def run_installed(installed, server, *command):
    env = {**server.env, "PATH": f"{installed / 'bin'}:/usr/bin:/bin"}
    result = subprocess.run([installed / "bin" / command[0], *command[1:]], env=env, capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, timeout=LIMIT)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout.strip()


@pytest.mark.release_build
def test_the_wheel_brings_module_command_and_simulated_driver(installed, server):
    assert run_installed(installed, server, "berth", "--version") == "berth 0.1.0"
    assert run_installed(installed, server, "berth", "run", "-n", "2", "--", "sh", "-c", "echo $BERTH_GPUS") == "0,1"
    assert run_installed(installed, server, "python", "-c", """if True:
        import berth, sys
        with berth.gpus(placeholder=True) as lease:
            print(lease.indices, [process.name for process in berth.status()[0].processes])
        print(berth.program() == sys.prefix + "/bin/berth", berth.__file__.startswith(sys.prefix))
    """) == "[0] ['berth-hold']\nTrue True"
    assert "berth-sim-job" in run_installed(installed, server, "berth-sim-job", "--help")


@pytest.mark.release_build
def test_the_wheel_is_typed_and_whole(installed):
    [package] = (installed / "lib").glob("python3*/site-packages/berth")

    def files(folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*")
                if path.is_file() and path.suffix not in (".pyc", ".so")}
    assert files(package) == files(ROOT / "python" / "berth")
    assert "py.typed" in files(package)
    assert len(list(package.glob("_native.*.so"))) == 1


@pytest.mark.release_build
def test_the_wheel_needs_nothing_but_glibc(installed):
    """As the other shipped files: see docs/dependencies.md."""
    [package] = (installed / "lib").glob("python3*/site-packages/berth")
    for path in [*package.glob("_native.*.so"), installed / "bin" / "berth"]:
        needed = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
        libraries = [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line]
        assert set(libraries) <= {"libc.so.6", "ld-linux-x86-64.so.2", "libm.so.6", "libdl.so.2", "libpthread.so.0"}, path
