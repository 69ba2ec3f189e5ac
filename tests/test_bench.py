"""The parts of ./dev bench that measure nothing: its arguments, the rounds, the check of limits, and the tables."""

import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import bench_figures  # noqa: E402
import bench_options  # noqa: E402
from bench_figures import Build, Fact, Measurement, Results, Sample  # noqa: E402

pytestmark = pytest.mark.release_only


def git(folder, *words):
    return subprocess.run(["git", "-C", folder, "-c", "user.name=n", "-c", "user.email=e", *words], check=True,
                          capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "second")
    return tmp_path


def parse_error(capsys, *arguments, **options):
    with pytest.raises(SystemExit) as stopped:
        bench_options.parse(arguments, **options)
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("./dev bench: ") and captured.err.count("\n") == 1
    return captured.err


def test_all_parts_are_measured_unless_some_are_named():
    everything = bench_options.parse([])
    assert (everything.parts, everything.commit, everything.check) == (list(bench_options.PARTS), None, False)
    assert bench_options.parse(["queue", "--check", "commands"]).parts == ["commands", "queue"]


def test_each_part_can_be_measured():
    import bench
    assert list(bench.PARTS) == list(bench_options.PARTS)


def test_wrong_arguments_get_one_line(capsys, repository):
    assert "'nonsense'" in parse_error(capsys, "nonsense") and "commands" in parse_error(capsys, "nonsense")
    assert "--rounds" in parse_error(capsys, "--rounds", "0") and "'x'" in parse_error(capsys, "--runs", "x")
    assert "--waiters" in parse_error(capsys, "--waiters", "10")
    assert "--nonsense" in parse_error(capsys, "--nonsense")
    assert "'nonsense'" in parse_error(capsys, "--against", "nonsense", root=repository)
    assert "'--all'" in parse_error(capsys, "--against=--all", root=repository)


def test_against_names_a_commit(repository):
    options = bench_options.parse(["--against", "HEAD~1"], root=repository)
    assert options.commit == git(repository, "rev-parse", "HEAD~1") and options.against == "HEAD~1"
    assert (options.slow_rounds, bench_options.parse([]).slow_rounds) == (3, 1)


def test_dev_checks_the_arguments_before_it_builds():
    for arguments in (["nonsense"], ["--against", "no-such-revision"]):
        result = subprocess.run([ROOT / "dev", "bench", *arguments], capture_output=True, text=True, timeout=20)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)


def test_the_help_lists_all_parts_and_needs_no_build():
    result = subprocess.run([ROOT / "dev", "bench", "--help"], capture_output=True, text=True, timeout=20)
    assert (result.returncode, result.stderr) == (0, "")
    assert all(f"\n  {part} " in result.stdout for part in bench_options.PARTS) and "--against REV" in result.stdout


def test_a_ratio_is_the_median_of_its_rounds_and_has_a_spread():
    row = bench_figures.summarise([Sample("run", value, 2.0, 1.4, ("berth", "flock")) for value in (2.0, 8.0, 3.0)])
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == (1.5, 1.0, 4.0)
    assert (row["subject_ms"], row["yardstick_ms"], row["subject"], row["yardstick"]) == (3.0, 2.0, "berth", "flock")


def test_a_value_may_be_the_largest_of_its_rounds():
    row = bench_figures.summarise([Sample("shown (s)", value, limit=1.0, summary=max) for value in (0.2, 1.5)])
    assert (row["value"], row["value_low"], row["value_high"]) == (1.5, 0.2, 1.5)
    assert bench_figures.is_exceeded(row)


@pytest.mark.parametrize("value, limit, exceeded", [(1.4, 1.4, False), (1.41, 1.4, True), (9, None, False), (0, 0, False)])
def test_a_limit_is_the_largest_value_that_is_allowed(value, limit, exceeded):
    assert bench_figures.is_exceeded(bench_figures.summarise([Sample("figure", value, limit=limit)])) is exceeded


def test_the_table():
    figures = [bench_figures.summarise(samples) for samples in (
        [Sample("berth run", 3.0, 2.0, 1.35, ("", "")), Sample("berth run", 2.0, 2.0, 1.35, ("", ""))],
        [Sample("memory (MiB)", 2.5, limit=3.0)], [Sample("page load (ms)", 100), Sample("page load (ms)", 300)])]
    assert bench_figures.figure_table(figures) == [
        "figure            berth  yardstick  ratio         spread    limit",
        "berth run       2.50 ms    2.00 ms   1.25      1.00-1.50  1.35 ok",
        "memory (MiB)      2.500                                   3.00 ok",
        "page load (ms)  200.000                    100.00-300.00"]
    figures[0]["ratio"] = 1.36
    assert bench_figures.figure_table(figures)[1].endswith("1.35 EXCEEDED")


def comparison(here, other):
    return bench_figures.compare([Sample("run", value, 1.0) for value in here], [Sample("run", value, 1.0) for value in other])


@pytest.mark.parametrize("here, other, change", [
    ([1.1] * 7, [1.0] * 7, "SLOWER"), ([1.0] * 7, [1.1] * 7, "faster"), ([1.04] * 7, [1.0] * 7, ""),
    ([1.1] * 6, [1.0] * 6, ""), ([1.2] * 6 + [0.9], [1.0] * 7, ""), ([1.2] * 9 + [0.9], [1.0] * 10, "SLOWER"),
], ids=["slower", "faster", "too little", "too few rounds", "one of seven disagrees", "one of ten disagrees"])
def test_a_change_is_marked_if_the_rounds_agree(here, other, change):
    assert comparison(here, other)["change"] == change


def test_rounds_are_compared_in_pairs():
    row = comparison([2.0, 20.0, 3.0], [1.0, 10.0, 1.0])
    assert (row["here"], row["other"], row["ratio"], row["ratio_low"], row["ratio_high"]) == (3.0, 1.0, 2.0, 2.0, 3.0)


def test_a_value_of_zero_has_no_ratio():
    assert "ratio" not in comparison([0], [0])


def test_the_second_table():
    rows = [comparison([1.1] * 7, [1.0] * 7), bench_figures.compare([Sample("new", 2)], [], "berth exited with 64: bad flag"),
            bench_figures.compare([Sample("failed", 0)], [Sample("failed", 0)])]
    assert bench_figures.comparison_table(rows, "HEAD~3") == [
        "figure  this tree         HEAD~3  ratio     spread",
        "run      1.100 ms       1.000 ms   1.10  1.10-1.10  SLOWER",
        "new         2.000  not available",
        "failed      0.000          0.000"]
    assert bench_figures.unavailable_lines(rows, "HEAD~3") == ["not available at HEAD~3: new (berth exited with 64: bad flag)"]


@pytest.fixture
def results():
    return Results([Build("this tree", pathlib.Path("a")), Build("old", pathlib.Path("b"))])


def test_builds_are_measured_by_turns_in_alternating_order(results):
    order = []

    def measure(build):
        order.append(build.label)
        return [Sample("run", 1.0 if build.label == "old" else 2.0), Fact("about", build.label)]
    results.measure(Measurement(3, measure))
    assert order == ["this tree", "old", "old", "this tree", "this tree", "old"]
    (row,) = results.comparisons()
    assert (row["here"], row["other"], row["ratio"]) == (2.0, 1.0, 2.0)
    assert results.facts == {"about": "this tree"}


def test_what_the_other_revision_cannot_run_is_not_available_there(results):
    def measure(build):
        program = "true" if build.label == "this tree" else "echo the flag is unknown >&2; exit 64"
        subprocess.run(["sh", "-c", program], check=True, capture_output=True)
        return [Sample("new", 1.0)]
    results.measure(Measurement(1, lambda build: [Sample("old", 1.0)]))
    results.measure(Measurement(3, measure))
    old, new = results.comparisons()
    assert old["other"] == 1.0
    assert new["unavailable"] == "sh exited with 64: the flag is unknown"
    assert len(results.samples["this tree"]["new"]) == 3


def test_a_failure_of_this_tree_is_an_error(results):
    def measure(build):
        raise ValueError("broken")
    with pytest.raises(ValueError):
        results.measure(Measurement(1, measure))
