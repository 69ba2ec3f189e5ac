"""A real browser for the tests of the page: Debian's Chromium, driven by tests/browser/driver.mjs."""

import json
import subprocess
import threading

import pytest
from conftest import ROOT
from waiting import LIMIT

MODULES = ROOT / "build" / "browser"  # ./dev puts them there


class Browser:
    """One browser; each page is a viewer of its own."""

    def __init__(self):
        assert (MODULES / "node_modules").is_dir(), f"{MODULES} is missing: ./dev test makes it"
        self.process = subprocess.Popen(["node", ROOT / "tests/browser/driver.mjs"], cwd=MODULES, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.commands = 0
        self.lock = threading.Lock()

    def do(self, what, **details):
        with self.lock:
            self.commands += 1
            self.process.stdin.write(json.dumps({"id": self.commands, "do": what, **details}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        assert line, "the browser has ended"
        answer = json.loads(line)
        assert answer["id"] == self.commands, answer
        assert "error" not in answer, f"{what} {details}: {answer['error']}"
        return answer["result"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait(LIMIT)
        self.process.stdout.close()


class Page:
    def __init__(self, browser, number, url, **options):
        self.browser = browser
        self.name = f"page {number}"
        self.forgiven = ()
        self.do("open", url=url, **options)

    def do(self, what, **details):
        return self.browser.do(what, page=self.name, **details)

    def wait(self, expression):
        """Waits until it is true, and gives its value."""
        return self.do("wait", expression=expression)

    def js(self, expression):
        return self.do("evaluate", expression=expression)

    def text(self, selector):
        """What can be read there; None if it is not there."""
        return self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    def wait_for_text(self, selector, words):
        return self.wait(f"document.querySelector({json.dumps(selector)})?.innerText?.includes({json.dumps(words)})")

    def wait_for_card(self, index, words):
        """Waits until the card of a GPU says so; all that it says."""
        return self.wait(f"{card(index)}?.innerText.includes({json.dumps(words)}) && {card(index)}.innerText")

    def click(self, selector):
        self.do("click", selector=selector)

    def press(self, *keys):
        self.do("press", keys=keys)

    def assert_nothing_wrong(self):
        """No error, no refusal by the page's own rules, no request to anybody else."""
        wrong = [text for text in self.do("wrong") if not any(words in text for words in self.forgiven)]
        assert wrong == [], wrong


def card(index):
    """The card of a GPU of the first host, in JavaScript."""
    return f"[...document.querySelectorAll('.card')].find(it => it.querySelector('h4').textContent === 'GPU {index}')"


@pytest.fixture
def show(serve, open_page, server):
    """The page of this server, once it is live."""
    def start(*flags, **options):
        serving = serve(*flags)
        page = open_page(serving.line.strip(), **options)
        page.wait_for_text("#link", "live")
        page.serving = serving
        return page
    return start


@pytest.fixture(scope="session")
def browser():
    one = Browser()
    yield one
    one.stop()


@pytest.fixture
def open_page(browser):
    """Opens pages that close with the test, which fails if something was wrong in one."""
    pages = []

    def open_one(url, **options):
        pages.append(Page(browser, browser.commands, url, **options))
        return pages[-1]
    yield open_one
    try:
        for page in pages:
            page.assert_nothing_wrong()
    finally:
        for page in pages:
            page.do("close")
