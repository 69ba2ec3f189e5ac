"""Detached jobs and batches on the page, in a real browser: their list, their output, and their end."""

import fcntl
import json
import os
import pwd

import pytest
from leasing import NOBODY, eventually, jobs  # noqa: F401
from page import browser, card, open_page, show  # noqa: F401
from processes import ALICE
from serving import serve  # noqa: F401
from test_detach import detach, finish_of, folder_of, lease_ids
from test_serve_jobs import signals_in, submit, trapped

pytestmark = pytest.mark.release_only

ME = pwd.getpwuid(os.geteuid()).pw_name
PHONE = {"width": 390, "height": 844}
HOSTILE = "<img src=x onerror=window.hacked=1>'\"&amp;\u202eabc\x1b[31m"
ROWS = "[...document.querySelectorAll('.job-row')]"


def row(job):
    """The row of a job, in JavaScript."""
    return f"{ROWS}.find(it => it.querySelector('.job-id').textContent.endsWith('{job}'))"


def wait_for_row(page, job, *words):
    """Waits until the row of a job says all of these; what it says."""
    for word in words:
        page.wait(f"{row(job)}?.innerText.includes({word!r})")
    return page.js(f"{row(job)}.innerText")


def end_button(job):
    return f"{row(job)}.querySelector('.buttons').lastElementChild"


def press_button(page, job):
    page.js(f"{end_button(job)}.focus()")
    page.press("Enter")
    page.wait("document.querySelector('dialog').open")


def waiting_batch(server):
    """A batch with two lines that have succeeded, one that has failed, and two that run until the file is there."""
    go = server.folder / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done"
    return detach(server, "batch", "-d", "-k", "--label", "sweep", "--logs", server.folder / "logs", "--", "true", "false", "true", waits,
                  waits), go


def test_jobs_of_each_state_and_a_batch_with_its_progress(server, show):
    server.use("2x24GiB")
    page = show("--allow-changes")
    failed = submit(server, command=["sh", "-c", "exit 3"])
    eventually(lambda: finish_of(server, failed) is not None, "a job ends")
    assert "ended" in wait_for_row(page, failed, "failed, exit code 3")
    batch, go = waiting_batch(server)
    wait_for_row(page, batch, "3 of 5 lines done, 1 failed, 2 running", "GPUs 0, 1", "sweep", "running")
    widths = page.js(f"[...{row(batch)}.querySelectorAll('.batch-track > div')].map(it => it.style.width)")
    assert widths == ["40%", "20%", "40%"]
    assert page.js(f"{row(batch)}.querySelector('.batch-track').ariaLabel") == "3 of 5 lines done, 1 failed, 2 running"
    waiting = submit(server, "--time", "1h", "--label", "patient")
    assert "patient" in wait_for_row(page, waiting, "waiting, position 1")
    held = submit(server, "--after", waiting)
    wait_for_row(page, held, "held")
    page.js(f"window.node = {row(batch)}; true")
    go.touch()
    wait_for_row(page, batch, "failed, exit code 1", "5 of 5 lines done, 1 failed")
    wait_for_row(page, waiting, "running", "left")
    assert page.js(f"node === {row(batch)}"), "the node stays"
    # What is active comes first; the search finds jobs, too.
    order = page.js(f"{ROWS}.map(it => it.dataset.job)")
    assert order == ["running", "held", "failed", "failed"]
    page.do("fill", selector="#search", text="sweep")
    page.wait(f"{ROWS}.length === 1")
    page.do("fill", selector="#search", text="no such job")
    page.wait_for_text("#jobs-more", "No job matches the filter.")


def test_a_job_is_ended_with_the_keyboard_after_a_confirmation(server, show):
    job = submit(server, "--label", "night run")
    page = show("--allow-changes")
    wait_for_row(page, job, "running", "night run")
    press_button(page, job)
    assert page.js("document.activeElement.id") == "dialog-no", "Enter alone ends nothing"
    text = page.text("dialog")
    for words in (f"End job {job}?", "night run · sleep 1000", "running for", "on GPU 0", "SIGTERM", "10 s"):
        assert words in text, (words, text)
    page.press("Escape")
    page.wait("!document.querySelector('dialog').open")
    assert lease_ids(server) == [job]
    press_button(page, job)
    page.press("Tab", "Enter")
    wait_for_row(page, job, "failed, exit code 143")
    page.wait("!document.querySelector('dialog').open")
    page.wait(f"document.querySelector('#announcer').textContent === 'job {job} has ended'")
    assert lease_ids(server) == []
    assert page.js(f"{end_button(job)}.hidden"), "an ended job cannot be ended"


def test_a_slow_end_leaves_the_page_usable(server, show):
    go = server.folder / "go"
    slow, file = trapped(server, "slow", f"while [ ! -e {go} ]; do sleep 0.05; done; exit 0")
    other = submit(server, "--label", "other")
    page = show("--allow-changes")
    wait_for_row(page, other, "running")
    press_button(page, slow)
    page.click("#dialog-yes")
    eventually(lambda: signals_in(file), "SIGTERM")
    page.wait("document.querySelector('#dialog-yes').textContent === 'Ending …'")
    page.click("#dialog-no")
    page.wait(f"{end_button(slow)}.disabled && {end_button(slow)}.textContent === 'Ending …'")
    # The answer of the first request does not close the dialog of the next.
    press_button(page, other)
    go.touch()
    wait_for_row(page, slow, "succeeded")
    assert page.js("document.querySelector('dialog').open") and other in page.text("#dialog-title")
    page.click("#dialog-yes")
    wait_for_row(page, other, "failed, exit code 143")
    page.wait("!document.querySelector('dialog').open")


def test_what_cannot_be_ended_says_why(server, show):
    job = submit(server)
    page = show("--allow-changes")
    page.forgiven = ("status of 409",)
    wait_for_row(page, job, "running")
    press_button(page, job)
    assert server.berth("cancel", job).returncode == 0
    page.click("#dialog-yes")
    page.wait("document.querySelector('#dialog-error').innerText.includes('has ended already')")
    assert page.js("document.querySelector('dialog').open")
    assert page.text("#dialog-yes") == f"End job {job}"
    assert page.do("axe") == []
    page.click("#dialog-no")
    page.wait("!document.querySelector('dialog').open")


@pytest.mark.needs_root
def test_the_lease_of_a_job_can_be_ended_on_its_card_and_anothers_cannot(server, jobs, serve, open_page, open_build):
    theirs = jobs.hold("--gpu", "0", "--label", "of root")
    program = open_build / "bin" / "berth"
    mine = jobs.hold("--gpu", "1", "--label", "of nobody", prefix=NOBODY, program=program)
    page = open_page(serve("--allow-changes", prefix=NOBODY, program=program).line.strip())
    page.wait_for_card(1, "of nobody")
    offers = [page.js(f"[...{card(gpu)}.querySelectorAll('.leases button')].filter(it => it.checkVisibility()).map(it => it.textContent)")
              for gpu in (0, 1)]
    assert offers == [[], ["End"]]
    page.js(f"[...{card(1)}.querySelectorAll('.leases button')].at(-1).click()")
    text = page.wait("document.querySelector('dialog').open && document.querySelector('dialog').innerText")
    assert "of nobody" in text and "running for" in text
    page.click("#dialog-yes")
    page.wait_for_card(1, "free")
    mine.process.wait()
    assert theirs.runs


@pytest.mark.needs_root
def test_a_user_without_jobs_is_told_how_to_start_one(server, serve, open_page, open_build):
    program = open_build / "bin" / "berth"
    prefix = ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups"]
    page = open_page(serve("--allow-changes", prefix=prefix, program=program).line.strip())
    page.wait("document.querySelector('#jobs-empty').checkVisibility()")
    assert "berth run -d -- python train.py" in page.text("#jobs-empty")
    service = open_page(serve("--allow-changes").line.strip())
    service.wait_for_card(0, "free")
    assert service.js("document.querySelector('#jobs').hidden"), "root is a service here"


def test_without_a_token_there_are_no_jobs(server, serve, open_page):
    job = submit(server, "--label", "mine")
    serving = serve("--allow-changes")
    page = open_page(f"http://127.0.0.1:{serving.port}/")
    page.wait_for_card(0, "mine")
    page.wait("document.querySelector('#version').textContent !== 'Berth'")
    assert page.js("document.querySelector('#jobs').hidden && document.querySelector('#jump-jobs').hidden")
    page.click("#unlock")
    page.do("type", text=serving.token)
    page.press("Enter")
    wait_for_row(page, job, "mine")


def test_a_token_that_is_only_for_viewing_ends_nothing(server, serve, open_page):
    path = server.folder / "token"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    path.chmod(0o600)
    job = submit(server)
    serving = serve("--token-file", path)
    page = open_page(f"http://127.0.0.1:{serving.port}/#token={path.read_text().strip()}")
    wait_for_row(page, job, "running")
    assert page.js(f"[...{row(job)}.querySelectorAll('button')].every(it => !it.checkVisibility())")


def test_the_output_is_text_and_follows_the_job(server, show):
    go = server.folder / "go"
    script = (f"printf '%s\\n' '<img src=x onerror=window.hacked=1>'; printf '\\033[31mred\\033[0m\\n 1%%\\r 50%%\\r100%%\\n'; "
              f"while [ ! -e {go} ]; do sleep 0.05; done; echo the end")
    job = submit(server, command=["sh", "-c", script])
    page = show("--allow-changes")
    wait_for_row(page, job, "running")
    page.js(f"{row(job)}.querySelector('[aria-expanded=false]').focus()")
    page.press("Enter")
    text = page.wait(f"{row(job)}.querySelector('pre').innerText.includes('100%') && {row(job)}.querySelector('pre').innerText")
    assert text.split("\n")[-3:] == ["<img src=x onerror=window.hacked=1>", "red", "100%"]
    assert page.do("axe") == []
    go.touch()
    page.wait(f"{row(job)}.querySelector('pre').innerText.endsWith('the end')")
    wait_for_row(page, job, "succeeded")
    assert page.js("document.querySelectorAll('main script, main img').length === 0 && window.hacked === undefined")
    folder = folder_of(server, job)
    other = submit(server)
    wait_for_row(page, other, "running")
    assert folder.exists()


def test_hostile_labels_and_commands_are_text(server, show):
    job = submit(server, "--label", HOSTILE, command=["sh", "-c", "sleep 1000", HOSTILE + "x" * 2000])
    page = show("--allow-changes")
    shown = wait_for_row(page, job, "<img src=x onerror=window.hacked=1>")
    assert "\\u202eabc\\u001b[31m" in shown
    press_button(page, job)
    assert "<img src=x onerror=window.hacked=1>" in page.text("#dialog-text")
    assert page.js("document.querySelectorAll('main script, main img, dialog img').length === 0 && window.hacked === undefined")
    text = page.js("document.body.innerText + [...document.querySelectorAll('[title], [aria-label]')].map(it => it.title + it.ariaLabel).join('')")
    assert not set("\u202e\x1b") & set(text)
    for look in ({"width": 1280}, PHONE):
        page.do("look", **look)
        assert page.js("document.documentElement.scrollWidth <= innerWidth")


def test_a_job_on_another_host_is_shown_and_not_ended_here(server, show):
    """A home folder may be shared by several hosts, and so may the folders of jobs."""
    here = submit(server)
    folder = folder_of(server, here).with_name("bbbbcccc")
    folder.mkdir(mode=0o700)
    spec = json.loads((folder_of(server, here) / "spec.json").read_text())
    (folder / "events").write_text(json.dumps({"event": "granted", "lease": "bbbbcccc", "gpus": "5", "at_ms": spec["submitted_ms"]}) + "\n")
    with (folder / "alive").open("w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        (folder / "spec.json").write_text(json.dumps({**spec, "id": "bbbbcccc", "host": "gpu2"}))
        page = show("--allow-changes")
        assert "GPU 5 on gpu2" in wait_for_row(page, "bbbbcccc", "running")
        wait_for_row(page, here, "running")
        assert page.js(f"[{end_button('bbbbcccc')}.hidden, {end_button(here)}.hidden]") == [True, False]


def test_only_the_last_ended_jobs_are_shown_at_first(server, show):
    for number in range(7):
        job = submit(server, "--label", f"number {number}", command=["true"])
        eventually(lambda job=job: finish_of(server, job) is not None, "it ends")
    page = show("--allow-changes")
    page.wait_for_text("#jobs-all", "Show 2 more ended jobs")
    assert page.js(f"{ROWS}.map(it => it.querySelector('.what').textContent[7]).join('')") == "65432"
    page.click("#jobs-all")
    page.wait(f"{ROWS}.length === 7")
    assert page.js("document.activeElement.id === 'jobs' && document.querySelector('#jobs-all').hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_a_phone_shows_all_of_it(server, show, scheme):
    server.use("3x24GiB")
    submit(server, command=["sh", "-c", "exit 3"])
    submit(server, "--label", "mine", "--time", "2h")
    waiting_batch(server)
    waiting = submit(server, "-n", "3")
    submit(server, "--after", waiting)
    page = show("--allow-changes", scheme=scheme, **PHONE)
    page.wait(f"{ROWS}.length === 5 && !{ROWS}.some(it => it.dataset.job === 'waiting' && it.innerText.includes('not joined'))")
    page.wait_for_text("#jump", "Jobs (4)")
    assert page.do("axe") == []
    assert page.js("document.documentElement.scrollWidth") == 390
    page.do("look", width=1280)
    assert page.do("axe") == []
