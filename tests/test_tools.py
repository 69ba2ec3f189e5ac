"""The tools that check the tests, the layers and the language: they pass on this tree, and they find what is wrong."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.release_only
SUMMARY = ROOT / "tests" / "tools" / "summary.py"


def summary(tmp_path, *files, runner_failed="0"):
    paths = []
    for i, text in enumerate(files):
        path = tmp_path / f"{i}.xml"
        if text is not None:
            path.write_text(text)
        paths.append(path)
    return subprocess.run([sys.executable, SUMMARY, runner_failed, *paths], capture_output=True, text=True)


def case(inner="", **attributes):
    listed = " ".join(f'{name}="{value}"' for name, value in {"classname": "c", "name": "n", **attributes}.items())
    return f"<testcase {listed}>{inner}</testcase>"


def suite(*cases):
    return f"<testsuite>{''.join(cases)}</testsuite>"


def test_a_good_run_passes(tmp_path):
    result = summary(tmp_path, suite(case(), case()), suite(case(status="run")))
    assert (result.returncode, result.stdout) == (0, "3 passed, 0 failed\n")


@pytest.mark.parametrize("files, failed", [
    ([suite(case(), case("<failure/>"))], 1), ([suite(case(), case("<error/>"))], 1),
    ([suite(case(), case(status="fail"))], 1), ([suite(case(), case("<skipped message='why'/>"))], 1),
    ([suite(case(), case(status="notrun"))], 1), ([suite(case()), suite()], 1), ([suite(case()), None], 1),
    ([suite(case()), "<testsuite>"], 1),
], ids=["failure", "error", "ctest's failure", "skipped", "not run", "no test", "no file", "half a file"])
def test_anything_else_does_not(tmp_path, files, failed):
    result = summary(tmp_path, *files)
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1] == f"1 passed, {failed} failed"


def test_a_test_that_passes_in_a_second_run_is_listed(tmp_path):
    (tmp_path / "0-second-run.xml").write_text(suite(case(name="a"), case("<failure/>", name="b")))
    result = summary(tmp_path, suite(case(), case("<failure/>", name="a"), case("<failure/>", name="b")))
    assert result.returncode == 1
    unstable, failed, last = result.stdout.splitlines()
    assert unstable.startswith("unstable: c.a ") and failed.startswith("failed: c.b ") and last == "2 passed, 1 failed"


def test_a_runner_that_failed_is_a_failure_even_if_every_test_passed(tmp_path):
    result = summary(tmp_path, suite(case()), runner_failed="1")
    assert (result.returncode, result.stdout.splitlines()[-1]) == (1, "1 passed, 1 failed")


def test_only_what_depends_on_others_may_be_skipped(tmp_path):
    result = summary(tmp_path, suite(case(), case("<skipped message='no network'/>", name="test_nvtop")))
    assert (result.returncode, result.stdout) == (0, "skipped: c.test_nvtop: no network\n1 passed, 0 failed\n")


def test_a_folder_that_includes_what_lies_above_it_is_found(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name, text in {"tests/tools/layers.py": (ROOT / "tests/tools/layers.py").read_text(),
                       "src/base/a.h": '#include "devices/b.h"\n', "src/devices/b.h": '#include "base/a.h"\n',
                       "src/devices/nvml_abi.h": "", "sim/c.cpp": '#include "devices/nvml_abi.h"\n#include "devices/b.h"\n',
                       "src/lease/d.cpp": '#include "nowhere.h"\n'}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    result = subprocess.run([sys.executable, tmp_path / "tests/tools/layers.py"], capture_output=True, text=True)
    assert result.returncode == 1
    assert sorted(line.split(":")[0] for line in result.stdout.splitlines()) == [
        "sim/c.cpp", "src/base/a.h", "src/lease/d.cpp"]


def test_the_tests_that_the_document_names_exist():
    text = (ROOT / "docs" / "testing.md").read_text()
    named = set(re.findall(r"`(test_\w+?)(?:\[[^`]*\])?`", text)) | set(re.findall(r"`\w+\.(\w+)`", text))
    assert len(named) > 100
    tests = [path for folder, pattern in [("tests", "*.py"), ("src", "*_test.cpp"), ("sim", "*_test.cpp")]
             for path in (ROOT / folder).rglob(pattern)]
    words = set(re.findall(r"\w+", " ".join(path.read_text() for path in tests)))
    files = {path.stem for path in tests} | {"py"}  # `test_batch.py` reads as a suite and its test
    assert named - words - files == set()


@pytest.mark.parametrize("tool", ["layers", "prose"])
def test_this_tree_is_clean(tool):
    result = subprocess.run([sys.executable, ROOT / "tests" / "tools" / f"{tool}.py"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_dialect_old_names_and_types_of_one_name_are_found(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name, text in {
        "tests/tools/prose.py": (ROOT / "tests/tools/prose.py").read_text(),
        "src/a.cpp": '// Whoever waits is woken.\nstruct Twice {\n};\n',
        "src/b.cpp": 'auto text = "the file is no "\n            "list";\nstruct Twice {\n};\n',
        "src/c.cpp": "// The waiter is woken.\nauto name = \"nobody's\";\nLooker looker;\n",
        "docs/d.md": "Two GPUs are to\nbe had. `nobody` is an account.\n",
        "README.md": "There is no daemon.\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    result = subprocess.run([sys.executable, tmp_path / "tests/tools/prose.py"], capture_output=True, text=True)
    assert result.returncode == 1
    found = sorted(":".join(line.split(":")[:2]) for line in result.stdout.splitlines() if not line.startswith("src/a.cpp, "))
    assert found == ["docs/d.md:1", "src/a.cpp:1", "src/b.cpp:1", "src/c.cpp:2", "src/c.cpp:3"], result.stdout
    assert "2 types are called Twice" in result.stdout
