"""The simulation that ./dev bench measures, on a small server: it ends, and no invariant breaks."""

import json
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from conftest import BUILD, ROOT

pytestmark = pytest.mark.release_only  # the unit tests of the scheduler run its paths

SIMULATE = BUILD / "bench" / "simulate"


def simulate(server, *arguments):
    result = server.run(SIMULATE, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def waits(server, *arguments):
    return simulate(server, "waits", "--gpus", 20, "--jobs", 500, *arguments)


@pytest.mark.parametrize("policy", ["spread", "pack", "random"])
@pytest.mark.parametrize("declared", [0, 0.5, 1])
def test_every_job_runs_and_the_invariants_hold(server, policy, declared):
    # simulate itself aborts where I1, I2 or I8 breaks, or a job is left.
    run = waits(server, "--policy", policy, "--declared", declared)
    kinds = [run["waits"][kind]["jobs"] for kind in ("shared", "exclusive", "several")]
    assert sum(kinds) == run["waits"]["all"]["jobs"] == 500
    assert all(kinds)
    assert 0.5 < run["gpus_used"] <= run["gpus_held"] <= 1
    assert run["longest_queue"] > 0


def test_a_seed_says_everything_but_the_times(server):
    def timeless(*arguments):
        run = waits(server, *arguments)
        return {key: value for key, value in run.items() if key not in ("seconds", "deciding_s", "decisions_per_s")}
    assert timeless("--seed", 7) == timeless("--seed", 7)
    assert timeless("--seed", 7)["waits"] != timeless("--seed", 8)["waits"]


def test_a_walk_ends_where_nothing_is_left_and_goes_on_where_something_is(server):
    cases = simulate(server, "growth", "--gpus", 20, "--length", 50, "--length", 500, "--rounds", 2)
    looked_at = {case: [one["looked_at"] for one in lengths] for case, lengths in cases.items()}
    assert looked_at == {"full": [1, 1], "gaps": [50, 500]}
    assert all(len(one["ms"]) == 2 for lengths in cases.values() for one in lengths)


def test_the_plot_is_drawn_from_what_is_simulated(server):
    sys.path.insert(0, str(ROOT / "bench"))
    import simulation_bench
    runs = [waits(server, "--policy", policy, "--declared", declared)
            for policy, declared in simulation_bench.SCENARIOS]
    (server.folder / "runs.json").write_text(json.dumps(runs))
    result = server.run(sys.executable, ROOT / "bench" / "plot_waits.py", server.folder / "runs.json",
                        server.folder / "plot.svg")
    assert (result.returncode, result.stderr) == (0, "")
    lines = ElementTree.parse(server.folder / "plot.svg").getroot().findall("{*}polyline")
    assert len(lines) == 18  # three in each of six charts
