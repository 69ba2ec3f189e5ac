"""Sweeps: berth batch with values for placeholders, from the command line and from CSV files."""

import pytest
from batches import Batch, counts
from conftest import ROOT, assert_one_line_error
from documents import console_blocks

NASTY = ["a b", "c;touch ran", "$(touch ran)", "`touch ran`", "it's", '"x"', "&& touch ran", "*", "\\", "", "-n", "#x", "~", "a=b\nc"]


@pytest.fixture
def batch(server):
    with Batch(server.use("2x24GiB")) as one:
        yield one


def arguments_of(batch, folder):
    """The arguments that each line was given, by its number."""
    return {number: text.split("\0")[:-1] for number, text in batch.logs(folder).items()}


def test_a_sweep_has_a_line_for_each_combination(batch):
    result = batch.run("--logs", "logs", "--", "printf '%s\\0' --lr {} --seed {}", ":::", "1e-3", "1e-4", ":::", "1", "2", "3")
    assert result.returncode == 0, result
    assert counts(result.stdout) == [6, 0]
    assert [(one[1], one[3]) for one in arguments_of(batch, "logs").values()] == \
        [(lr, seed) for lr in ("1e-3", "1e-4") for seed in "123"]


def test_each_value_is_one_argument(batch):
    result = batch.run("--logs", "logs", "--", "printf '%s\\0'", "x{}", "y{}", ":::", *NASTY, ":::+", *NASTY)
    assert result.returncode == 0, result
    assert list(arguments_of(batch, "logs").values()) == [["x" + value, "y" + value] for value in NASTY]
    assert batch.ran() == []


def test_a_value_cannot_end_quotes_of_the_command(batch):
    for command in ('echo "{}"', "echo '{}'", 'echo "$(echo "{}")"', "echo `echo {}`", "echo $(({}))", "cat <<E\n{}\nE"):
        for value in NASTY:
            result = batch.run("--dry-run", "--", command, ":::", value)
            assert result.returncode == (0 if value in ("", "-n") else 64), (command, value, result)


def test_a_sweep_from_a_csv_file(batch):
    rows = "".join('{},"{}"\n'.format(number, value.replace('"', '""')) for number, value in enumerate(NASTY))
    (batch.folder / "runs.csv").write_text(f"seed , text\n{rows}")
    result = batch.run("--csv", "runs.csv", "--", "printf '%s\\0' {seed} {text} ${HOME+home}")
    assert result.returncode == 0, result
    assert list(arguments_of(batch, "runs.logs").values()) == [[str(n), value, "home"] for n, value in enumerate(NASTY)]
    assert [one["line"] for one in sorted(batch.joblog("runs.logs/joblog.jsonl"), key=lambda one: one["number"])] == \
        list(range(2, 2 + len(NASTY)))
    assert batch.ran() == []


def test_the_sweeps_of_the_documentation(batch):
    steps = [step for block in console_blocks((ROOT / "docs/batch.md").read_text()) for step in block]
    [table] = [step for step in steps if step.command == "cat runs.csv"]
    batch.write(*table.expected, name="runs.csv")
    sweeps = [step for step in steps if "--dry-run" in step.command]
    assert len(sweeps) == 2
    for step in sweeps:
        result = batch.server.run("sh", "-c", step.command, cwd=batch.folder)
        assert result.stdout.splitlines() + result.stderr.splitlines() == step.expected


@pytest.mark.parametrize("text, command, words", [
    ("", "x {lr}", "is empty"), ("lr,seed\n1\n", "x {lr}", "line 2 of 'runs.csv' has 1 value"), ("lr\n1\n", "x {sed}", "'sed'"),
    ("lr,lr\n", "x {lr}", "two columns"), ("lr\n\"1\n", "x {lr}", "not closed"), ("lr\n1\n", "x", "{NAME}"),
    ("lr\n\x1b[31m\n", "echo '{lr}'", "\\x1b"), ("\x1b[31m\n1\n", "echo {lr}", "\\x1b"), ("lr\n\0\n", "x {lr}", "NUL"),
], ids=repr)
def test_mistakes_in_a_csv_file(batch, text, command, words):
    (batch.folder / "runs.csv").write_text(text)
    assert_one_line_error(batch.run("--csv", "runs.csv", "--", command), 64, words)


def test_a_csv_file_without_rows_is_no_failure(batch):
    (batch.folder / "runs.csv").write_text("lr,seed\n")
    result = batch.run("--csv", "runs.csv", "--", "echo {lr}")
    assert (result.returncode, result.stdout) == (0, "") and "no rows" in result.stderr


@pytest.mark.parametrize("arguments, words", [
    (["--", "x {3}", ":::", "1", ":::", "2"], "{3}"), (["--", "x {lr}", ":::", "1"], "{lr}"), (["--", "x", ":::"], "no values"),
    (["x {}", ":::", "1"], " -- "), (["python", "x.py"], "berth run -- python x.py"), (["--csv", "a", "x"], " -- "),
    (["--csv", "a", "--", "x", ":::", "1"], ":::"), (["--", ":::", "1"], "no command"),
], ids=repr)
def test_mistakes_in_a_sweep(batch, arguments, words):
    assert_one_line_error(batch.run(*arguments), 64, words)
    assert not list(batch.folder.glob("*.logs"))


def test_no_value_is_a_command(batch):
    """Where berth cannot follow the quotes of the shell, it refuses the values."""
    (batch.folder / "runs.csv").write_text("name\n$(touch ran)\n")
    for command in ('echo "${OUT:-"run-{name}"}"', "# x \\\necho '{name}'", "echo \\ # '\n{name} '", "cat <<E\n{name}\nE"):
        result = batch.run("--csv", "runs.csv", "--", command)
        assert result.returncode == 64, (command, result)
        assert not (batch.folder / "ran").exists(), command
