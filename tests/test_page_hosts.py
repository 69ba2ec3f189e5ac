"""The page of `berth serve` where several hosts share a harbour, in a real browser."""

import subprocess

import pytest
from page import browser, open_page  # noqa: F401
from serving import serve  # noqa: F401
from test_hosts import harbour, hosts  # noqa: F401

pytestmark = pytest.mark.release_only

HOSTS = "[...document.querySelectorAll('.host')].filter(it => it.checkVisibility())"


def test_every_host_has_its_cards_and_its_queue(hosts, serve, open_page):
    one, other = hosts
    page = open_page(serve(env=one.env).line.strip())
    page.wait(f"{HOSTS}.length === 2")
    assert page.js(f"{HOSTS}.map(it => it.querySelectorAll('.card').length)") == [2, 1]
    assert page.js(f"{HOSTS}.map(it => it.innerText.split('\\n')[0])") == ["gpu-a", "gpu-b"]
    # What begins on another host is seen here, though nothing of it passes this one.
    job = other.start("run", "--label", "far away", "--", "sh", "-c", "read x", stdin=subprocess.PIPE)
    page.wait(f"{HOSTS}[1].innerText.includes('far away') && {HOSTS}[1].innerText.includes('leased')")
    other.start("run", "--label", "next there", "--", "true")
    page.wait_for_text("#queue", "next there")
    job.stdin.close()
    page.wait(f"{HOSTS}[1].innerText.includes('free')")


def test_only_here_is_anything_changed(hosts, serve, open_page):
    page = open_page(serve("--allow-changes", env=hosts[0].env).line.strip())
    page.wait(f"{HOSTS}.length === 2")
    drains = "[...it.querySelectorAll('.foot > button')].filter(one => one.checkVisibility()).length"
    page.wait(f"{HOSTS}[0].querySelector('.foot > button')?.checkVisibility()")
    assert page.js(f"{HOSTS}.map(it => {drains})") == [2, 0]
