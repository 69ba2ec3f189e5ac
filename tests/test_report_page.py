"""The page of `berth report --html` in a real browser: nothing is cut off at any size, and the plots can be read."""

import functools
import http.server
import threading

import pytest
from page import browser, open_page  # noqa: F401
from test_report import HOUR, Archive, gpu

pytestmark = pytest.mark.release_only

SIZES = [{"width": 1920, "height": 1080}, {"width": 1400, "height": 900}, {"width": 1280, "height": 800},
         {"width": 900, "height": 700}, {"width": 390, "height": 844}]

# What is wider than its place, or ends outside of the window.
CUT_OFF = """[...document.querySelectorAll('body, .wide, td, th, dd, figcaption, summary, svg text')].filter(it => {
  const box = it.getBoundingClientRect();
  return box.width > 0 && (box.left < 0 || box.right > innerWidth + 0.5 || (it instanceof HTMLElement && it.scrollWidth > it.clientWidth + 1));
}).map(it => `${it.tagName} ${it.className.baseVal ?? it.className}: ${it.textContent.slice(0, 40)}`)"""


@pytest.fixture
def month(server):
    """A month of leases of all kinds, with everything measured, and long names."""
    server.use("8x24GiB")
    cards = [{"uuid": one["uuid"], "index": str(one["index"]), "name": one["name"]} for one in server.status()["gpus"]]
    archive = Archive(server)
    for day in range(30):
        for index, card in enumerate(cards):
            use = {**card, "power_mw": 250_000 + 10_000 * day, "utilization_pct": 90 - 2 * day}
            archive.add(24 * day + 20, 6 + index + day % 5, gpus=[use], job=f"train_{index}.py", idle_ms=HOUR,
                        asked_ms=archive.now - int((24 * day + 20) * HOUR) - 60_000 * day * index)
        archive.add(24 * day + 4, 3, gpus=[cards[day % 8]], memory=8 << 30, job="a_job_type_whose_name_is_quite_long_" * 3)
    archive.add(700, 30, gpus=cards[:4], idle_ms=29 * HOUR, command="python a_very_long_command.py " * 8, label="forgotten")
    archive.add(3, 2, gpus=[gpu(123456)])
    return server


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def show(month, open_page):
    """The page in a window of this size."""
    assert month.berth("report", "--html", month.folder / "report.html").returncode == 0
    handler = functools.partial(QuietHandler, directory=str(month.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()

        def open_one(**size):
            page = open_page(f"http://127.0.0.1:{serving.server_port}/report.html", **size)
            page.forgiven = ("favicon",)
            page.js("document.querySelectorAll('details').forEach(it => { it.open = true; })")
            return page
        yield open_one
        serving.shutdown()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size['width']}x{size['height']}")
def test_nothing_is_cut_off(show, size):
    page = show(**size)
    assert page.js("document.documentElement.scrollWidth") <= size["width"]
    assert page.js(CUT_OFF) == []
    # Each value has its name beside it where the header is not shown.
    header = page.js("getComputedStyle(document.querySelector('tr')).display")
    assert (header == "none") == (size["width"] <= 900)


def test_each_plot_has_a_caption_and_axes(show):
    page = show(width=1400, height=900)
    plots = page.js("""[...document.querySelectorAll('figure')].map(it => ({
        caption: it.querySelector('figcaption').innerText,
        scale: [...it.querySelectorAll('text.value')].map(one => Number(one.textContent)),
        days: [...it.querySelectorAll('text.tick')].map(one => one.textContent)}))""")
    assert [words for words in ("GPU-hours", "Occupancy", "Utilization", "kWh", "Waiting")
            if not any(words in plot["caption"] for plot in plots)] == []
    for plot in plots:
        assert len(plot["caption"].splitlines()) == 2, plot
        scale = plot["scale"]
        assert scale[0] == 0 and 3 <= len(scale) <= 6 and scale == sorted(scale), plot
        assert 4 <= len(plot["days"]) <= 6 and len(set(plot["days"])) == len(plot["days"]), plot
    [percent] = [plot["scale"] for plot in plots if "Occupancy" in plot["caption"]]
    assert percent[-1] == 100
    # No column is higher than its axis.
    assert page.js("[...document.querySelectorAll('figure rect')].every(it => it.y.baseVal.value >= 7.9)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(show, scheme):
    assert show(width=1400, height=900, scheme=scheme).do("axe") == []
