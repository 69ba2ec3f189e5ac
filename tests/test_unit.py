"""`berth serve --print-unit`: a service that systemd takes, and that sees what everybody sees."""

import re
import subprocess

import pytest
from conftest import BERTH, ROOT, assert_one_line_error
from leasing import NOBODY
from waiting import LIMIT


def unit(server, *flags, **options):
    result = server.berth("serve", "--print-unit", *flags, **options)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout


def settings(text):
    return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))


def verify(text, folder):
    path = folder / "berth-serve.service"
    path.write_text(text)
    return subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=LIMIT)


@pytest.mark.parametrize("flags", [[], ["--port", "9000", "--allow-changes"], ["--behind-proxy", "gpus.example.org"]])
def test_systemd_takes_it(server, flags):
    text = unit(server, *flags)
    result = verify(text, server.folder)
    # It has a word to say about nobody, whom others may be, too; who has no rights anywhere is what is wanted.
    words = [line for line in result.stderr.splitlines() if "Special user nobody" not in line and str(BERTH.name) in line]
    assert (result.returncode, words) == (0, []), result
    assert settings(text)["ExecStart"] == " ".join([str(BERTH), "serve", *flags])


def test_systemd_would_notice(server):
    text = unit(server).replace("Restart=on-failure", "Restart=sometimes")
    assert "sometimes" in verify(text, server.folder).stderr


@pytest.mark.needs_root
def test_root_lets_nobody_serve_and_others_do_it_themselves(server, open_build):
    assert settings(unit(server))["User"] == "nobody"
    program = open_build / "bin" / "berth"
    result = server.run(*NOBODY, program, "serve", "--print-unit")
    assert settings(result.stdout)["User"] == "nobody" and settings(result.stdout)["ExecStart"] == f"{program} serve"
    result = server.run("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", program, "serve", "--print-unit")
    assert settings(result.stdout)["User"] == "12345"


def test_it_sees_the_same_harbour(server):
    text = unit(server)
    assert settings(text)["Environment"] == f"BERTH_DIR={server.harbour}"
    assert settings(text)["ReadWritePaths"] == f"-{server.harbour}/archive"
    assert settings(unit(server, "--allow-changes"))["ReadWritePaths"] == str(server.folder)
    text = unit(server, env={"BERTH_DIR": None})
    assert "Environment" not in settings(text)
    for hidden in ("PrivateTmp", "ProtectProc", "PrivateUsers", "PrivateDevices", "ProtectClock", "DynamicUser"):
        assert hidden not in settings(text)


def test_what_would_be_refused_is_refused_at_once(server):
    result = server.berth("serve", "--print-unit", "--listen", "0.0.0.0")
    assert_one_line_error(result, 64, "--token-file", "--behind-proxy")


@pytest.mark.release_only
def test_the_one_liner_is_everywhere_the_same(server):
    line = "berth serve --print-unit | sudo tee /etc/systemd/system/berth-serve.service"
    assert line in (ROOT / "docs" / "serve.md").read_text()
    assert line in unit(server)
