"""The page in daily use, in a real browser: what fits on a screen, ends, the future, jobs of the past, filters, notifications."""

import os
import pwd
import re

import pytest
from conftest import SERVERS
from leasing import NOBODY, jobs  # noqa: F401
from page import browser, card, open_page, show  # noqa: F401
from serving import serve  # noqa: F401
from test_report import Archive

pytestmark = pytest.mark.release_only

ME = pwd.getpwuid(os.geteuid()).pw_name
LAPTOP = {"width": 1400, "height": 900}
PHONE = {"width": 390, "height": 844}
VISIBLE = "filter(it => it.checkVisibility())"
HOSTILE = "<img src=x onerror=window.hacked=1>'\"&amp;"


def bottoms(page, selector):
    return page.js(f"[...document.querySelectorAll('{selector}')].map(it => it.getBoundingClientRect().bottom)")


def long_queue(server, jobs, time="3h"):
    """Eight GPUs, one of them shared, and ten waiting jobs."""
    server.use("8x80GiB")
    jobs.hold("-n", "6", "--label", "training of something with a long name", "--time", time)
    jobs.hold("--gpu", "6", "--mem", "8GiB", "--time", "2h", "--label", "one")
    jobs.hold("--gpu", "6", "--mem", "8GiB", "--time", "1h", "--label", "other")
    jobs.hold("--gpu", "7", "--time", "4h")
    for number in range(10):
        jobs.wait("-n", "2", "--mem", "70GiB", "--time", "30m", "--label", f"number {number}")


# What fits on a screen.


@pytest.mark.parametrize("time", ["3h", "1ms"], ids=["starts known", "starts unknown"])
def test_a_laptop_shows_eight_gpus_and_a_queue_of_ten_without_scrolling(server, jobs, show, time):
    long_queue(server, jobs, time)
    page = show(**LAPTOP)
    page.wait("document.querySelectorAll('.tickets li').length === 10 && document.querySelectorAll('.card').length === 8")
    assert max(bottoms(page, ".card")) <= 900 and max(bottoms(page, ".tickets li")) <= 900
    assert page.js("document.documentElement.scrollWidth") == 1400


def test_a_phone_reaches_the_queue_with_one_tap(server, jobs, show):
    server.use("8x80GiB")
    jobs.hold("-n", "8")
    jobs.wait("--label", "the only one")
    page = show(**PHONE, touch=True)
    page.wait_for_text("#jump", "Queue (1)")
    assert page.js("document.querySelector('#queue').getBoundingClientRect().top") > 844
    page.do("tap", selector="#jump a[href='#queue']")
    page.wait("document.querySelector('.tickets li').getBoundingClientRect().bottom < innerHeight")
    # The links stay on the screen, and cover nothing.
    top = page.js("document.querySelector('#queue-title').getBoundingClientRect().top")
    assert page.js("document.querySelector('#jump').getBoundingClientRect().bottom") <= top
    assert page.js("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("size", [LAPTOP, PHONE])
def test_open_details_change_the_size_of_no_card(server, jobs, show, size):
    server.use("8x80GiB")
    jobs.hold("-n", "8", "--label", "training")
    page = show(**size)
    page.wait_for_card(7, "training")
    sizes = "[...document.querySelectorAll('.card')].map(it => [it.offsetTop, it.offsetLeft, it.offsetHeight]).join()"
    before = page.js(sizes)
    for index in (0, 3, 7):
        page.js(f"{card(index)}.querySelector('summary').focus()")
        page.press("Enter")
        page.wait(f"{card(index)}.querySelector('.floating').checkVisibility()")
        assert page.js("document.querySelectorAll('.card details[open]').length") == 1
        assert page.js(sizes) == before
        inside = page.js(f"(() => {{ const it = {card(index)}.querySelector('.floating').getBoundingClientRect();"
                         "return it.left >= 0 && it.right <= document.documentElement.clientWidth; })()")
        assert inside
    page.press("Escape")
    assert page.js(f"!{card(7)}.querySelector('details').open && document.activeElement.textContent === 'Details'")


def test_compact_cards_are_remembered(server, show):
    page = show(**LAPTOP)
    page.wait_for_card(0, "Utilization")
    before = max(bottoms(page, ".card"))
    page.click("#compact")
    assert max(bottoms(page, ".card")) < before and "Utilization" not in page.wait_for_card(0, "free")
    page.do("reload")
    page.wait_for_card(0, "free")
    assert page.js("document.querySelector('#compact').checked") and "Utilization" not in page.wait_for_card(0, "free")


# When it ends, and what was asked.


def test_cards_say_when_leases_end_and_the_queue_what_was_asked(server, jobs, show):
    server.use("2x24GiB")
    jobs.hold("--gpu", "0", "--time", "1s", "--label", "too long")
    jobs.hold("--gpu", "1", "--time", "2h", "--label", "announced")
    jobs.wait("-n", "2", "--mem", "8GiB", "--time", "30m", "--label", "next")
    page = show()
    text = page.wait_for_card(1, "left")
    assert "until " in text and re.search(r"1 h 5\d min left", text), text
    assert "end unknown" not in page.wait_for_card(0, "overdue by ")
    page.wait("document.querySelectorAll('.tickets li').length === 1")
    request = server.status()["queue"][0]["request"]
    assert "2" in request and "8 GiB" in request
    assert request in page.text(".tickets li") and "next" in page.text(".tickets li")
    assert "GPU" in page.wait("document.querySelector('.next-free').checkVisibility() && "
                              "document.querySelector('.next-free').innerText")


def test_a_lease_without_an_end_says_so(server, jobs, show):
    jobs.hold("--gpu", "0")
    assert "end unknown" in show().wait_for_card(0, "leased")


def test_an_unknown_start_says_why(server, jobs, show):
    server.use("1x80GiB")
    jobs.hold("--label", "folding", "--time", "1ms")
    jobs.wait("--label", "first")
    page = show()
    text = page.wait("document.querySelector('.tickets li .start-reason')?.closest('li').innerText")
    assert "start unknown" in text and re.search(r"start unknown: \w+ \(folding\) is \d+s late", text)


def test_a_card_shows_the_end_of_the_name_of_its_gpu(server, show):
    """"MIG 3g.40gb" matters more than the vendor."""
    server.use(SERVERS / "mig.json")
    page = show(**LAPTOP)
    assert page.wait("document.querySelector('.model')?.textContent") == "A100-SXM4-80GB MIG 3g.40gb"
    assert page.js("[...document.querySelectorAll('.model')].every(it => it.scrollWidth <= it.clientWidth)")


def test_a_lease_that_cannot_be_read_is_no_gap(server, jobs, show):
    server.use("1x80GiB")
    jobs.hold("--time", "1h")
    [record] = server.harbour.glob("lease-*")
    record.write_text("nonsense")
    page = show()
    page.wait_for_card(0, "cannot be read")
    page.js("document.querySelector('.card details').open = true")
    page.wait_for_text(".card .floating", "cannot be read")
    assert "NaN" not in page.text("body") and "1970" not in page.text("body")
    page.assert_nothing_wrong()


def test_on_a_phone_the_figures_of_users_stand_below_their_titles(server, jobs, show):
    server.use("1x80GiB")
    jobs.hold().end()
    page = show(**PHONE)
    page.wait("document.querySelector('.usage tbody tr')")
    lefts = "[...document.querySelectorAll('.usage %s tr .number')].map(it => Math.round(it.getBoundingClientRect().left))"
    assert page.js(lefts % "thead") == page.js(lefts % "tbody")


def test_plots_have_axes(server, show):
    page = show()
    page.wait_for_card(0, "1 h ago")
    assert page.text(".axis-y").split("\n") == ["100 %", "0"] and page.text(".axis-x").split("\n") == ["1 h ago", "now"]


# The timeline.


def test_a_hostile_history_leaves_the_timeline_of_the_others(server, show):
    """One user's lines can name any number of GPUs that do not exist."""
    past_job(server)
    archive = Archive(server)
    for first in range(0, 512 * 20, 512):
        archive.add(20, 10, uid=4711, gpus=[{"uuid": f"GPU-{first + i}", "index": str(i), "name": "A6000"} for i in range(512)])
    page = show()
    page.wait_for_text("#timeline", "Only a part")
    assert page.js("document.querySelector('.row .span').textContent") == ME
    assert page.js("document.querySelectorAll('.row').length") <= 200 + len(server.status()["gpus"])
    assert ME in page.text("#usage") and "No jobs yet" not in page.text("#timeline")
    page.assert_nothing_wrong()


def test_a_timeline_that_cannot_be_drawn_does_not_hide_the_rest(server, show):
    past_job(server)
    page = show()
    page.wait("document.querySelector('.span')")
    page.js("""(() => {
      const before = window.fetch;
      window.fetch = async (url, options) => String(url).includes("timeline") ?
        new Response(JSON.stringify({since: "2026-01-01T00:00:00Z", until: "2026-01-02T00:00:00Z", gpus: null})) : before(url, options);
      return true;
    })()""")
    page.click("input[value='7d']")
    page.wait_for_text("#history-error", "The timeline cannot be drawn")
    page.forgiven = ("make_lines",)
    assert ME in page.text("#usage") and "No jobs yet" not in page.text("#timeline")


def past_job(server, **changes):
    gpu = server.status()["gpus"][0]
    return Archive(server).add(20, 10, gpus=[{"uuid": gpu["uuid"], "index": "0", "name": "A6000"}], **changes)


def test_a_span_tells_its_job_to_pointer_keyboard_and_finger(server, show):
    past_job(server, label="night run", command="python train.py --lr 1", ending="exited", code=3)
    page = show(touch=True)
    page.wait("document.querySelector('.span')")
    for show_it in (lambda: page.do("hover", selector=".span"), lambda: page.do("tap", selector=".span"),
                    lambda: page.js("document.querySelector('.span').focus()")):
        page.js("document.activeElement.blur()")
        page.do("hover", selector="h1")
        page.wait("!document.querySelector('.popup').checkVisibility()")
        show_it()
        text = page.wait("document.querySelector('.popup li') && document.querySelector('.popup').innerText")
        for words in (ME, "GPU 0", "night run", "python train.py --lr 1", "10 h", "exit code 3"):
            assert words in text, (words, text)
    assert page.js("document.querySelector('.span').getAttribute('aria-describedby')") == "timeline-popup"
    page.press("Escape")
    page.wait("!document.querySelector('.popup').checkVisibility()")


def test_texts_in_the_popup_are_text(server, show):
    past_job(server, label=HOSTILE, command=f"python {HOSTILE}\x1b[31m\u202e")
    page = show()
    page.wait("document.querySelector('.span')")
    page.do("hover", selector=".span")
    text = page.wait("document.querySelector('.popup li')?.innerText")
    assert HOSTILE in text and "\\u001b[31m\\u202e" in text
    assert page.js("document.querySelectorAll('main script, main img').length === 0 && window.hacked === undefined")


def test_arrows_move_between_spans_and_rows(server, show):
    gpus = [{"uuid": gpu["uuid"], "index": str(gpu["index"]), "name": "A6000"} for gpu in server.status()["gpus"]]
    archive = Archive(server)
    archive.add(20, 3, gpus=[gpus[0]])
    archive.add(10, 3, gpus=[gpus[0]])
    archive.add(9, 3, gpus=[gpus[2]])
    page = show()
    page.wait("document.querySelectorAll('.span').length === 3")
    assert page.js("document.querySelectorAll('.span[tabindex=\"0\"]').length") == 1
    where = ("(() => { const it = document.activeElement, row = it.closest('.row');"
             "return [row.firstChild.textContent, [...row.querySelectorAll('.span')].indexOf(it)].join(' '); })()")
    page.js("document.querySelector('.span').focus()")
    seen = []
    for key in ("ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft", "End", "ArrowRight"):
        page.press(key)
        seen.append(page.js(where))
    assert seen == ["GPU 0 1", "GPU 2 0", "GPU 0 1", "GPU 0 0", "GPU 0 1", "GPU 0 1"]
    assert page.js("document.querySelectorAll('.span[tabindex=\"0\"]').length") == 1


def test_the_timeline_has_a_future(server, jobs, show):
    server.use("1x24GiB")
    jobs.hold("--time", "2h", "--label", "running")
    jobs.wait("--time", "1h", "--label", "waiting")
    page = show()
    page.wait("document.querySelectorAll('.span.future').length === 2")
    names = page.js("[...document.querySelectorAll('.row .name')].map(it => it.textContent)")
    assert names == ["GPU 0", "Queue"]
    places = page.js("[...document.querySelectorAll('.span.future')].map(it => [it.style.left, it.style.width].map(parseFloat))")
    now = page.js("parseFloat(document.querySelector('.now').style.left)")
    (rest, two_hours), (start, one_hour) = places
    assert rest == pytest.approx(now, abs=0.2) and start == pytest.approx(now + two_hours, abs=0.4)
    assert one_hour == pytest.approx(two_hours / 2, rel=0.05)
    page.js("document.querySelectorAll('.span.future')[1].focus()")
    assert "waiting" in page.wait("document.querySelector('.popup li')?.innerText")
    assert "expected start" in page.text(".popup")


# Filters.


@pytest.mark.needs_root
def test_filters_by_user_state_and_words(server, jobs, show, open_build):
    jobs.hold("--gpu", "0", "--label", "mine", "--time", "1h")
    jobs.hold("--gpu", "1", "--label", "theirs", prefix=NOBODY, program=open_build / "bin" / "berth")
    jobs.wait("-n", "4", "--label", "patient")
    page = show()
    page.wait_for_card(1, "theirs")
    page.wait("document.querySelectorAll('.tickets li').length === 1")
    shown = f"[...document.querySelectorAll('.card h4')].{VISIBLE}.map(it => it.textContent)"

    def choose(selector, value):
        page.js(f"(() => {{ const it = document.querySelector('{selector}'); it.value = '{value}';"
                "it.dispatchEvent(new Event('input')); })()")

    choose("#user", "nobody")
    page.wait(f"{shown}.join() === 'GPU 1'")
    assert "No ticket matches" in page.text("#queue") and page.text("#filtered-text") == "1 of 4 GPUs, 0 of 1 ticket"
    page.click("#show-all")
    page.wait(f"{shown}.length === 4 && !document.querySelector('#filtered').checkVisibility()")
    # "Only mine" needs to know who that is; the page remembers it.
    assert page.js("document.querySelector('#mine').disabled")
    choose("#me", ME)
    page.click("#mine")
    page.wait(f"{shown}.join() === 'GPU 0' && document.querySelectorAll('.tickets li').length === 1")
    assert "you" in page.wait_for_card(0, "mine").split()
    page.do("reload")
    page.wait_for_card(1, "theirs")
    assert page.js("document.querySelector('#me').value") == ME
    # A state, and words in any order.
    page.click("#tallies button[data-state='free']")
    page.wait(f"{shown}.join() === 'GPU 2,GPU 3'")
    page.click("#tallies button[data-state='free']")
    page.do("fill", selector="#search", text="THEIRS nobody")
    page.wait(f"{shown}.join() === 'GPU 1'")
    assert "No ticket matches" in page.text("#queue"), "a ticket that waits for this GPU is not one of nobody's"
    page.do("fill", selector="#search", text="patient")
    page.wait("[...document.querySelectorAll('.card')].length === 0")
    assert "No GPU matches" in page.text("#gpus") and "patient" in page.text("#queue")
    assert page.do("axe") == []


# Notifications.


def test_notifications_of_jobs_that_start_and_end(server, jobs, show):
    server.use("1x24GiB")
    first = jobs.hold("--label", "first")
    waiter = jobs.wait("--label", HOSTILE)
    page = show(permissions=["notifications"])
    page.wait_for_card(0, "first")
    # The real notifications, and a list of what they said.
    page.js("window.said = []; window.Notification = class extends Notification {"
            "constructor(title, options) { super(title, options); said.push([title, options.body]); } }; true")
    page.js(f"(() => {{ const it = document.querySelector('#me'); it.value = '{ME}'; it.dispatchEvent(new Event('input')); }})()")
    page.click("#notify")
    page.wait("document.querySelector('#notify').checked")
    first.end()
    said = dict(page.wait("said.length === 2 && said"))
    assert sorted(said) == ["Your job has ended: exit code 0", "Your job has started on GPU 0"]
    assert said["Your job has started on GPU 0"].startswith(HOSTILE)
    assert said["Your job has ended: exit code 0"].startswith("first")
    waiter.end()
    said = page.wait("said.length === 4 && said")
    assert sorted(title for title, _ in said[2:]) == ["GPU 0 is free", "Your job has ended: exit code 0"]
