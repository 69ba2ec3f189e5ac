"""Every command of docs/tutorial.md is run, and prints what the tutorial shows."""

import os
import sys

import pytest
from conftest import ROOT, wait_until
from documents import console_blocks, run_sessions

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
pytestmark = pytest.mark.release_only


@pytest.mark.release_build
def test_the_tutorial_works_from_its_first_command_to_its_last(server):
    (server.folder / "build").symlink_to(ROOT / "build")
    steps = [step for block in console_blocks(TUTORIAL) for step in block if not step.command.startswith("./dev ")]
    assert len(steps) >= 25
    # With the Python that the package was built for.
    env = {**server.env, "PATH": f"{os.path.dirname(sys.executable)}:{server.env['PATH']}"}
    run_sessions(steps, env, server.folder)
    wait_until(lambda: not list(server.harbour.glob("lease-*")))
