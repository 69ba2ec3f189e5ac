"""The page of `berth serve`, in a real browser."""

import os
import pwd
import signal
import time

import pytest
from conftest import BERTH
from leasing import eventually, jobs  # noqa: F401
from page import browser, card, open_page, show  # noqa: F401
from serving import serve  # noqa: F401
from test_report import Archive

pytestmark = pytest.mark.release_only

ME = pwd.getpwuid(os.geteuid()).pw_name
PHONE = {"width": 360, "height": 740}
HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>'\"&amp;\u202eabc\u2066\x1b[31m\u0007"
LONG = "x" * 2000


def url_of(serving):
    return f"http://127.0.0.1:{serving.port}/"


def kill(job):
    """kill -9, of berth and of its job."""
    os.killpg(job.pid, signal.SIGKILL)
    job.process.wait()


def uuids(server):
    return [gpu["uuid"] for gpu in server.status()["gpus"]]


# What it shows.


def test_cards_say_what_each_gpu_is_doing(server, jobs, show):
    server.use({"gpus": [{"memory": "24GiB", "name": "NVIDIA Test 24", "count": 4}],
                "strangers": [{"gpu": 2, "memory": "6GiB", "name": "python3", "utilization": 40}]})
    jobs.hold("--gpu", "0", "--label", "training")
    jobs.hold("--gpu", "1", "--mem", "8GiB")
    assert server.berth("drain", "3", "--reason", "new fan").returncode == 0
    page = show()
    first = page.wait_for_card(0, "leased")
    for words in ("Test 24", ME, "training", "reserved", "0 of 24 GiB", "Utilization", "°C"):
        assert words in first, (words, first)
    second = page.wait_for_card(1, "shared")
    assert "8 GiB reserved" in second and "\n8 GiB\n" in second
    third = page.wait_for_card(2, "stranger")
    assert "python3" in third and "6 of 24 GiB" in third
    assert "new fan" in page.wait_for_card(3, "drained")
    # Colour is not all: each state has a shape of its own, too.
    shapes = page.js("[...document.querySelectorAll('.badge path')].map(it => it.getAttribute('d'))")
    assert len(set(shapes)) == 4
    assert page.js("[...document.querySelectorAll('#tallies li')].map(it => it.innerText.replace(/\\s+/g, ' '))") == [
        "0 free", "1 leased", "1 shared", "1 stranger", "1 drained", "0 waiting"]
    bar = f"{card(1)}.querySelector('.track .reserved').style.width"
    assert page.js(f"Math.round(parseFloat({bar}))") == 33
    assert page.js("document.title").startswith("0 of 4 ")


def test_a_job_is_seen_when_it_starts_and_when_it_is_killed(server, jobs, show):
    page = show(height=400)
    page.wait_for_card(0, "free")
    # Who reads stays where he is: the same nodes, the same focus, the same place.
    page.js(f"window.node = {card(0)}; node.querySelector('summary').focus(); window.scrollTo(0, 120); true")
    page.press("Enter")
    job = jobs.start(BERTH, "run", "--gpu", "0", "--label", "night run", "--", "sh", "-c", "read line",
                     start_new_session=True)
    page.wait_for_card(0, "night run")
    assert page.text(".card .badge") == "leased"
    kill(job)
    page.wait_for_card(0, "free")
    assert page.js(f"node === {card(0)} && document.activeElement === node.querySelector('summary')")
    assert page.js("node.querySelector('details').open && window.scrollY === 120")


def test_the_queue_says_who_waits_and_why(server, jobs, show):
    server.use("1x24GiB")
    first = jobs.hold("--time", "2h", "--label", "long one")
    page = show()
    page.wait_for_text("#queue", "berth run -- python train.py")
    jobs.wait("--label", "second")
    jobs.wait("-n", "1", "--mem", "8GiB", "--label", "third")
    page.wait("document.querySelectorAll('.tickets li').length === 2")
    tickets = page.js("[...document.querySelectorAll('.tickets li')].map(it => it.innerText)")
    for words in ("1", ME, "second", "1 GPU", f"{ME} (long one)", "in ~1 h 59 min"):
        assert words in tickets[0], (words, tickets)
    assert "1 GPU" in tickets[1] and "8 GiB" in tickets[1] and tickets[1].startswith("2")
    page.js("window.second = document.querySelectorAll('.tickets li')[1]; true")
    first.end()
    page.wait("document.querySelectorAll('.tickets li').length === 1")
    assert page.js("document.querySelector('.tickets li') === second && second.innerText.startsWith('1')")


def test_the_timeline_and_the_gpu_hours(server, jobs, show):
    archive = Archive(server)
    one, two = [{"uuid": uuid, "index": str(i), "name": "A6000"} for i, uuid in enumerate(uuids(server)[:2])]
    archive.add(20, 10, gpus=[{**one, "utilization_pct": 80}])
    archive.add(100, 50, gpus=[two])
    archive.add(6, 3, gpus=[two], memory=8 << 30)
    page = show()
    row = "document.querySelectorAll('.row')"
    page.wait(f"{row}.length === 4")
    page.wait(f"{row}[0].querySelectorAll('.span').length === 1")
    place = page.js("(() => { const {left, width} = document.querySelector('.span').style;"
                    "return [parseFloat(left), parseFloat(width)]; })()")
    assert [round(value) for value in place] == [17, 42]
    # By name in the span, by name and colour in the legend, and as a table.
    assert page.text(".span") == page.text(".legend li") == ME
    assert page.js("document.querySelector('.spans').getAttribute('aria-label')") == f"GPU 0: {ME} 10.0 hours"
    assert page.text(".usage tbody tr").split() == [ME, "13.0", "80", "%", "–", "2", "0", "s"]
    page.click("input[value='7d']")
    page.wait(f"{row}[1].querySelectorAll('.span').length === 2")
    page.wait_for_text(".usage tbody", "63.0")
    page.click("#timeline summary")
    assert page.text("#timeline tbody").split() == ["GPU", "0", ME, "10.0", "GPU", "1", ME, "53.0"]
    # A lease that ends is history at once.
    assert server.berth("run", "--gpu", "3", "--", "true").returncode == 0
    page.wait(f"{row}[3].querySelectorAll('.span').length === 1")


def test_what_is_empty_says_what_to_do(server, show):
    page = show()
    page.wait_for_text("#queue", "berth run -- python train.py")
    page.wait_for_text("#timeline", "berth run -- python train.py")
    page.wait("document.querySelector('#usage .empty')?.checkVisibility()")
    assert page.js("document.querySelector('#idle').hidden")


def test_idle_leases_stand_out(server, jobs, show):
    server.use("2x24GiB")
    jobs.hold("--gpu", "1", "--label", "forgotten")
    long_ago = time.time() - 3600  # the holder touches its record while the GPU is used
    os.utime(next(server.harbour.glob("lease-*")), (long_ago, long_ago))
    page = show()
    page.wait_for_text("#idle", "GPU 1 idle")
    assert "forgotten" in page.text("#idle") and " 1 h" in page.text("#idle") and " 1 h" in page.wait_for_card(1, "idle")


def test_a_problem_is_told_and_healed(server, show):
    server.use({"gpus": [{"memory": "24GiB"}]})
    page = show()
    page.wait_for_card(0, "free")
    away = server.harbour.with_name("away")
    server.harbour.rename(away)
    server.harbour.write_text("not a directory")
    page.wait("!document.querySelector('#notice').hidden")
    assert page.text("#link") == "problem"
    server.harbour.unlink()
    away.rename(server.harbour)
    page.wait("document.querySelector('#notice').hidden")
    assert page.text("#link") == "live"


# Whom it must not obey.


def test_hostile_labels_and_commands_are_text(server, jobs, show):
    server.use("1x24GiB")
    jobs.start(BERTH, "run", "--label", HOSTILE, "--", "sh", "-c", "read line", HOSTILE + LONG)
    eventually(lambda: server.status()["gpus"][0]["leases"])
    jobs.wait("--label", HOSTILE + "x" * 160, command=["true", HOSTILE])
    page = show()
    shown = page.wait_for_card(0, "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>'\"&amp;")
    page.wait("document.querySelectorAll('.tickets li').length === 1")
    everything = shown + page.text("#queue")
    assert "\\u202eabc\\u2066" in everything
    page.click(".card summary")
    page.wait("document.querySelector('.card pre')?.textContent.includes('window.hacked')")
    assert page.js("document.querySelectorAll('main script, main img').length") == 0
    assert page.js("window.hacked === undefined")
    text = page.js("document.body.innerText + [...document.querySelectorAll('[title], [aria-label]')]"
                   ".map(it => it.title + it.ariaLabel).join('')")
    assert not set("\u202e\u2066\x1b\x07") & set(text)
    # However long it is, it breaks nothing.
    for look in ({"width": 1280}, PHONE):
        page.do("look", **look)
        assert page.js("document.documentElement.scrollWidth <= innerWidth")
        # What is too long for its line ends with an ellipsis.
        assert page.js("[...document.querySelectorAll('.what, .why, pre')].every(it => it.scrollWidth <= it.clientWidth ||"
                       " getComputedStyle(it).textOverflow === 'ellipsis')")


# The connection.


def test_a_lost_connection_is_shown_and_heals(server, jobs, show, serve):
    page = show()
    page.forgiven = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE",
                     "ERR_CONNECTION_RESET", "ERR_CONTENT_LENGTH_MISMATCH")
    page.wait_for_card(0, "free")
    page.js(f"window.node = {card(0)}; true")
    assert page.serving.end() == 0
    page.wait_for_text("#notice", "lost")
    assert page.text("#link") == "lost"
    assert "lost" in page.js("document.querySelector('#announcer').textContent")
    jobs.hold("--gpu", "0", "--label", "meanwhile")
    serve(port=page.serving.port)
    page.wait_for_card(0, "meanwhile")
    assert page.js(f"document.querySelector('#notice').hidden && node === {card(0)}")
    assert page.text("#link") == "live"


# Tokens and changes.


@pytest.fixture
def token_file(server):
    path = server.folder / "token"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    path.chmod(0o600)
    return path


def test_a_token_is_asked_for_where_it_is_needed(server, serve, open_page, token_file):
    serving = serve("--token-file", token_file)
    page = open_page(url_of(serving))
    page.forgiven = ("status of 401", "status of 403")
    page.wait("document.activeElement.id === 'token-value'")
    assert page.js("document.querySelector('#view').hidden") and "token" in page.text("#link")
    assert page.do("axe") == []
    page.do("type", text="wrong")
    page.press("Enter")
    page.wait("document.querySelector('#token-error').innerText !== ''")
    page.do("fill", selector="#token-value", text=token_file.read_text().strip())
    page.press("Enter")
    page.wait_for_card(0, "free")
    assert page.js("document.querySelector('#token').hidden")
    # The browser keeps it, but not where a script of another page or the history could find it.
    page.do("reload")
    page.wait_for_card(0, "free")
    assert page.js("document.cookie") == "" and "token" not in page.js("location.href")


def test_changes_by_buttons_with_the_token_of_the_address(server, jobs, show):
    job = jobs.hold("--gpu", "0", "--label", "mine")
    page = show("--allow-changes")
    assert "token" not in page.js("location.href")
    page.wait_for_card(0, "mine")
    # Drained, with the keyboard alone.
    page.js(f"{card(1)}.querySelector('.foot > button').focus()")
    page.press("Enter")
    page.wait("document.querySelector('dialog').open")
    page.do("type", text="new <b>fan</b>")
    page.press("Enter")
    assert "new <b>fan</b>" in page.wait_for_card(1, "drained")
    page.wait("!document.querySelector('dialog').open")
    assert page.js(f"document.activeElement === {card(1)}.querySelector('.foot > button')")
    assert server.status()["gpus"][1]["state"] == "drained"
    page.press("Enter", "Tab", "Enter")
    page.wait_for_card(1, "free")
    # A ticket.
    waiting = jobs.wait("--gpu", "0")
    page.wait("document.querySelectorAll('.tickets li').length === 1")
    page.click(".tickets button")
    page.press("Escape")
    page.wait("!document.querySelector('dialog').open")
    assert waiting.runs
    page.click(".tickets button")
    page.click("#dialog-yes")
    page.wait_for_text("#queue", "berth run -- python train.py")
    eventually(lambda: not waiting.runs)
    assert job.runs


def test_a_shells_lease_is_released_and_a_jobs_is_ended(server, jobs, show):
    job = jobs.hold("--gpu", "0")
    for gpu in ("1", "2"):
        assert server.berth("acquire", "--gpu", gpu, "--print", "json").returncode == 0
    page = show("--allow-changes")
    page.forgiven = ("status of 404",)
    page.wait_for_card(2, "leased")
    offers = [page.js(f"[...{card(gpu)}.querySelectorAll('.leases button')].filter(it => it.checkVisibility()).map(it => it.textContent)")
              for gpu in (0, 1, 2)]
    assert offers == [["End"], ["Release"], ["Release"]]
    page.js(f"{card(1)}.querySelector('.leases button').click()")
    page.click("#dialog-yes")
    page.wait_for_card(1, "free")
    page.wait("!document.querySelector('dialog').open")
    # What is refused says why: this one was given back meanwhile.
    page.js(f"{card(2)}.querySelector('.leases button').click()")
    assert server.berth("release", "2").returncode == 0
    page.wait_for_card(2, "free")
    page.click("#dialog-yes")
    page.wait("document.querySelector('#dialog-error').innerText !== ''")
    assert job.runs and page.js("document.querySelector('dialog').open")


def test_without_a_token_there_is_no_button(server, serve, open_page):
    serving = serve("--allow-changes")
    page = open_page(url_of(serving))
    page.wait_for_card(0, "free")
    buttons = "[...document.querySelectorAll('.card button')].filter(it => !it.hidden).length"
    assert page.js(buttons) == 0
    page.click("#unlock")
    page.do("type", text=serving.token)
    page.press("Enter")
    page.wait(f"{buttons} === 4")


# For everybody.


def test_everything_can_be_reached_by_keyboard(server, jobs, show):
    jobs.hold("--gpu", "0")
    page = show()
    page.wait_for_card(0, "leased")
    page.wait("document.querySelector('#timeline summary')?.checkVisibility()")
    table = page.text("#timeline summary").strip()
    where = "(document.activeElement.innerText || document.activeElement.value || '').trim()"
    page.press("Tab")
    assert page.js("document.activeElement.getAttribute('href')") == "#gpus"
    assert page.js("document.activeElement.getBoundingClientRect().top >= 0")
    page.press("Enter")
    assert page.js("document.activeElement.id") == "gpus"
    page.press("Tab")
    assert page.js(where) == "Details"
    # Where one is can be seen.
    assert page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("Enter")
    page.wait_for_card(0, "GPU-")
    reached = []
    while "Metrics" not in reached:
        page.press("Tab")
        reached.append(page.js(where))
        assert len(reached) < 30, reached
    expected = ["Details", "Details", "Details", "24h", table, "API", "Metrics"]
    assert [name for name in reached if name in expected] == expected
    page.js("document.querySelector('input[value=\"24h\"]').focus()")
    page.press("ArrowRight")
    assert page.js("document.querySelector('input:checked').value") == "7d"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(server, jobs, show, scheme):
    server.use({"gpus": [{"memory": "24GiB", "count": 5}],
                "strangers": [{"gpu": 2, "memory": "6GiB"}], "faults": [{"gpu": 4, "lost": True}]})
    jobs.hold("--gpu", "0", "--label", "training")
    jobs.hold("--gpu", "1", "--mem", "8GiB")
    assert server.berth("drain", "3").returncode == 0
    jobs.wait("-n", "2", "--gpu", "0,1")
    page = show("--allow-changes", scheme=scheme)
    page.wait_for_card(4, "lost")
    page.wait("document.querySelectorAll('.tickets li').length === 1")
    page.wait("document.querySelectorAll('.span').length === 2")
    # Of the details of the cards, one is open at a time.
    page.js("for (const it of [...document.querySelectorAll('details')].reverse()) it.open = true; true")
    for look in ({"width": 1280}, PHONE):
        page.do("look", **look)
        assert page.do("axe") == []
    page.click(".tickets button")
    assert page.do("axe") == []
    # The scheme is the one that was asked for.
    light = page.js("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(it => it > 128)")
    assert light == (scheme == "light")


def test_a_phone_is_wide_enough(server, jobs, show):
    server.use("8x80GiB")
    jobs.hold("-n", "2", "--label", "training of something with a long name")
    jobs.wait("-n", "8")
    page = show(**PHONE)
    page.wait_for_card(0, "leased")
    page.wait("document.querySelectorAll('.span').length > 0")
    page.js("for (const it of document.querySelectorAll('details')) it.open = true; true")
    assert page.js("document.documentElement.scrollWidth") == 360
    outside = page.js("[...document.querySelectorAll('main *')].filter(it => it.getBoundingClientRect().right > 361)"
                      ".map(it => it.outerHTML.slice(0, 100))")
    assert outside == []
