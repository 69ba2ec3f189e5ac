"""Makes the pictures in docs/ anew: the page in light, dark and on a phone, and `berth top` (unless --page is given).

Run by `./dev screenshots`, as root.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

import lab
from ansi import page_of
from conftest import ROOT
from page import Browser, Page
from serving import Serving
from waiting import wait_until

DOCS = ROOT / "docs"
COLUMNS, LINES = 120, 50
# What most people's browsers would choose, instead of what a bare server has.
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><include>/etc/fonts/fonts.conf</include>
<alias binding="strong"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
<alias binding="strong"><family>sans</family><prefer><family>Inter</family></prefer></alias>
<alias binding="strong"><family>sans-serif</family><prefer><family>Inter</family></prefer></alias></fontconfig>"""


def open_lab(browser, serving, **look):
    page = Page(browser, str(look), f"http://127.0.0.1:{serving.port}/", **look)
    page.wait("document.querySelectorAll('.span').length > 20 && document.querySelectorAll('.usage tbody tr').length > 4")
    page.wait("document.querySelectorAll('.card').length === 8 && document.querySelectorAll('.plot .line[d]').length === 16")
    return page


def take_page(browser, serving):
    """Light and dark on a laptop, with the jobs of a span of the timeline; and the queue on a phone."""
    for scheme in ("light", "dark"):
        page = open_lab(browser, serving, scheme=scheme, width=1400, height=900)
        page.js("[...document.querySelectorAll('.row')][2].querySelector('.span:not(.future).named').focus({preventScroll: true})")
        page.wait("document.querySelector('.popup li')")
        keep(page, DOCS / f"page-{scheme}.png", whole=True)
    page = open_lab(browser, serving, scheme="dark", width=390, height=844, scale=2)
    page.js("document.querySelector('#queue').scrollIntoView()")
    keep(page, DOCS / "page-phone.png")


def write_load(it):
    """What an earlier server would have saved."""
    folder = it.server.harbour / "archive" / "0"
    folder.mkdir(exist_ok=True)
    hosts = [{"host": lab.HOST, "gpus": [lab.last_hour(gpu) for gpu in it.status()["gpus"]]}]
    (folder / "gpu-load.json").write_text(json.dumps({"slot": int(time.time()) // 10, "hosts": hosts}))


def take_top(browser, it):
    """`berth top` in a terminal, which is drawn by the browser."""
    tmux = ["tmux", "-L", it.server.folder.name, "-f", "/dev/null"]
    it.server.run(*tmux, "new-session", "-d", "-x", COLUMNS, "-y", LINES, f"{it.berth} top",
                  ";", "set", "-g", "status", "off")
    try:
        def shown():
            text = it.server.run(*tmux, "capture-pane", "-e", "-N", "-p").stdout
            return text if "maria" in text and "oluwaseun" in text else None
        wait_until(shown, "berth top shows the lab")
        time.sleep(float(os.environ.get("BERTH_TOP_SECONDS", "20")))  # not for the program: so that its plots have a past
        captured = shown()
    finally:
        it.server.run(*tmux, "kill-server")
    file = it.server.folder / "top.html"
    file.write_text(page_of(captured))
    page = Page(browser, "top", file.as_uri(), scheme="dark", scale=1.5)
    size = page.js("(() => { const it = document.querySelector('pre').getBoundingClientRect();"
                   "return {x: 0, y: 0, width: Math.ceil(it.width), height: Math.ceil(it.height)}; })()")
    page.do("look", width=size["width"], height=size["height"])
    keep(page, DOCS / "top.png", clip=size)


def keep(page, path, **how):
    page.do("screenshot", path=str(path), **how)
    subprocess.run(["pngquant", "--force", "--ext", ".png", "--speed", "1", "--quality", "60-95", path], check=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB")


def main():
    if os.getuid() != 0:
        sys.exit("screenshots: it becomes several users: run it as root")
    if "--inside" not in sys.argv:
        os.execvp("unshare", ["unshare", "--mount", "--uts", "--propagation", "private", sys.executable, *sys.argv, "--inside"])
    lab.set_names()
    it = lab.Lab()
    fonts = it.server.folder / "fonts.conf"
    fonts.write_text(FONTS)
    os.environ["FONTCONFIG_FILE"] = str(fonts)
    browser = Browser()
    try:
        it.fill()
        write_load(it)
        serving = Serving(it.server, program=it.berth)
        take_page(browser, serving)
        serving.end()
        if "--page" in sys.argv:
            return
        if "top" in it.server.run(it.berth, "help").stdout:
            take_top(browser, it)
        else:
            print("there is no berth top yet: docs/top.png is left as it is")
    finally:
        browser.stop()
        it.stop()


if __name__ == "__main__":
    pathlib.Path(DOCS).mkdir(exist_ok=True)
    main()
