"""What a terminal shows, as a page: `tmux capture-pane -e` in, HTML out."""

import html
import re

BASIC = ["#30363d", "#f47067", "#6bc46d", "#daaa3f", "#6cb6ff", "#dcbdfb", "#56d4dd", "#cdd9e5",
         "#768390", "#ff938a", "#8ddb8c", "#eac55f", "#96d0ff", "#f2d9ff", "#b3f0ff", "#ffffff"]
INK, GROUND = "#d5dce5", "#12171e"


def colour_256(number):
    if number < 16:
        return BASIC[number]
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return f"rgb({grey},{grey},{grey})"
    steps = [0, 95, 135, 175, 215, 255]
    number -= 16
    return f"rgb({steps[number // 36]},{steps[number // 6 % 6]},{steps[number % 6]})"


class Pen:
    def __init__(self):
        self.reset()

    def reset(self):
        self.ink = self.ground = None
        self.bold = self.dim = self.reverse = self.underline = False

    def apply(self, codes):
        codes = [int(code or 0) for code in re.split("[;:]", codes)]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.reset()
            elif code in (1, 2, 4, 7):
                setattr(self, {1: "bold", 2: "dim", 4: "underline", 7: "reverse"}[code], True)
            elif code in (22, 24, 27):
                self.bold, self.dim = (False, False) if code == 22 else (self.bold, self.dim)
                self.underline = self.underline and code != 24
                self.reverse = self.reverse and code != 27
            elif code in (38, 48) and codes:
                kind = codes.pop(0)
                colour = colour_256(codes.pop(0)) if kind == 5 else "rgb({},{},{})".format(*[codes.pop(0) for _ in "rgb"])
                setattr(self, "ink" if code == 38 else "ground", colour)
            elif code in (39, 49):
                setattr(self, "ink" if code == 39 else "ground", None)
            else:
                for first, base, what in ((30, 0, "ink"), (40, 0, "ground"), (90, 8, "ink"), (100, 8, "ground")):
                    if first <= code < first + 8:
                        setattr(self, what, BASIC[base + code - first])

    def style(self):
        ink, ground = self.ink or INK, self.ground or GROUND
        if self.reverse:
            ink, ground = ground, ink
        parts = [f"color:{ink}"] + ([f"background:{ground}"] if ground != GROUND else [])
        parts += ["font-weight:700"] * self.bold + ["opacity:.65"] * self.dim + ["text-decoration:underline"] * self.underline
        return ";".join(parts)


def page_of(captured):
    pen, out = Pen(), []
    for piece in re.split(r"(\x1b\[[0-9;:]*m)", captured.replace("\x0f", "").replace("\x0e", "")):
        if piece.startswith("\x1b"):
            pen.apply(piece[2:-1])
        elif piece:
            out.append(f'<span style="{pen.style()}">{html.escape(piece)}</span>')
    return (f'<!doctype html><meta charset="utf-8"><style>body{{margin:0;background:{GROUND}}}pre{{margin:0;padding:18px 22px;'
            f'width:max-content;font:14px/1.3 "DejaVu Sans Mono",monospace;color:{INK}}}</style><pre>{"".join(out)}</pre>')
