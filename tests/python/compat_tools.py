"""What the tests of the compatibility layer share: Python with the built package, and the tools' commands by name."""

import os
import sys

import pytest
from conftest import Server
from pythons import PACKAGE as PACKAGES

PYTHON = sys.executable
TOOLS = ["GPU.py", "grn-start", "grn-run"]


def use_package(server):
    """Every Python of this server finds the package, and what is in server.folder / "modules"."""
    (server.folder / "modules").mkdir()
    server.env["PYTHONPATH"] = f"{PACKAGES}:{server.folder / 'modules'}"
    return server


def use_tools(server):
    """Their commands are in the PATH, in the way that `berth compat` tells."""
    folder = server.folder / "tools"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).write_text(f'#!/bin/sh\nexec berth compat {name} "$@"\n')
        (folder / name).chmod(0o755)
    server.env["PATH"] = f"{folder}:{server.env['PATH']}"
    return server


@pytest.fixture(autouse=True)
def python_in_path(server):
    """The python3 of the PATH is the one that the package was built for."""
    server.env["PATH"] = f"{os.path.dirname(PYTHON)}:{server.env['PATH']}"


@pytest.fixture
def tools(server):
    return use_tools(use_package(server))


def script(server: Server, name: str, text: str):
    """A file in a folder of its own, so that nothing else is on its path."""
    path = server.folder / "scripts" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def compat(server, *words, **options):
    """python -m berth.compat WORDS"""
    return server.run(PYTHON, "-m", "berth.compat", *words, **options)


def good(result):
    """Its output; it must have succeeded and said nothing on stderr."""
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout
