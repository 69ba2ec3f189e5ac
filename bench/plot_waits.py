"""Draws the waiting times of the simulation: plot_waits.py build/simulation.json docs/waiting-times.svg

Drawn by hand, since six small line charts do not justify a plotting library."""

import json
import pathlib
import sys

KINDS = (("shared", "1 GPU, shared"), ("exclusive", "1 GPU, exclusive"), ("several", "several GPUs"))
# Each row: its heading, and its lines: label, policy, fraction of the users who declare run times.
ROWS = (
    ("By policy; half of the users declare run times",
     (("spread", "spread", 0.5), ("pack", "pack", 0.5), ("random", "random", 0.5))),
    ("By the share of users that declare run times; policy spread",
     (("no users", "spread", 0), ("half of the users", "spread", 0.5), ("all users", "spread", 1))),
)
WIDTH, LEFT, TOP, PANEL_WIDTH, PANEL_HEIGHT, GAP, ROW_HEIGHT = 920, 64, 66, 260, 150, 26, 276
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .heading { font-weight: 600; font-size: 14px }
  .small { font-size: 11px; fill: #57606a }
  .back { fill: #ffffff }
  .grid { stroke: #d8dee4; stroke-width: 1 }
  .line { fill: none; stroke-width: 2.2; stroke-linejoin: round }
  .line0 { stroke: #0969da }
  .line1 { stroke: #c4500b; stroke-dasharray: 7 3 }
  .line2 { stroke: #1a7f37; stroke-dasharray: 2 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9ea7b3 }
    .back { fill: #0d1117 }
    .grid { stroke: #30363d }
    .line0 { stroke: #58a6ff }
    .line1 { stroke: #ff9b5e }
    .line2 { stroke: #56d364 }
  }
"""


def text(x, y, content, style="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{content}</text>'


def segment(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def hours_shown(runs):
    """The length of the axis of a row (a whole number of steps), and the step."""
    longest = max(run["waits"][kind]["percentiles_s"][100] for run in runs for kind, _ in KINDS) / 3600
    step = next(step for step in (0.25, 0.5, 1, 2, 4, 8, 16, 24, 48) if longest / step <= 7)
    return step * -(-longest // step), step


def panel(x, y, runs, kind, hours, step, first):
    """One chart: the percentage of the jobs that have started, over the hours."""
    parts = []
    for percent in (0, 25, 50, 75, 100):
        at = y + PANEL_HEIGHT * (1 - percent / 100)
        parts.append(segment(x, at, x + PANEL_WIDTH, at, "grid"))
        if first:
            parts.append(text(x - 8, at + 4, f"{percent} %", "small", "end"))
    for i in range(round(hours / step) + 1):
        at = x + PANEL_WIDTH * i * step / hours
        parts.append(segment(at, y + PANEL_HEIGHT, at, y + PANEL_HEIGHT + 4, "grid"))
        parts.append(text(at, y + PANEL_HEIGHT + 17, f"{i * step:g}", "small", "middle"))
    parts.append(text(x + PANEL_WIDTH / 2, y + PANEL_HEIGHT + 33, "hours waited", "small", "middle"))
    for number, run in enumerate(runs):
        points = [(x + PANEL_WIDTH * seconds / 3600 / hours, y + PANEL_HEIGHT * (1 - percent / 100))
                  for percent, seconds in enumerate(run["waits"][kind]["percentiles_s"])]
        points.append((x + PANEL_WIDTH, y))
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{path}" class="line line{number}"/>')
    return parts


def row(y, heading, lines, runs):
    parts = [text(LEFT, y, heading, "heading")]
    x = LEFT
    for number, (label, *_) in enumerate(lines):
        parts += [segment(x, y + 18, x + 30, y + 18, f"line line{number}"), text(x + 37, y + 22, label)]
        x += 62 + 6.5 * len(label)
    hours, step = hours_shown(runs)
    for column, (kind, title) in enumerate(KINDS):
        x = LEFT + column * (PANEL_WIDTH + GAP)
        parts.append(text(x + PANEL_WIDTH / 2, y + 48, title, "", "middle"))
        parts += panel(x, y + 58, runs, kind, hours, step, column == 0)
    return parts


def draw(results):
    by_scenario = {(run["policy"], run["declared"]): run for run in results}
    one = results[0]
    height = TOP + len(ROWS) * ROW_HEIGHT - 20
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
             f'height="{height}" role="img">',
             "<title>Waiting times of jobs, by policy and by the share of users that declare run times</title>",
             f"<style>{STYLE}</style>", f'<rect width="{WIDTH}" height="{height}" class="back"/>',
             text(LEFT, 28, f"Jobs that have started, by waiting time ({one['gpus']:,} GPUs and "
                            f"{one['jobs']:,} jobs, simulated)", "heading")]
    for number, (heading, lines) in enumerate(ROWS):
        runs = [by_scenario[policy, declared] for _, policy, declared in lines]
        parts += row(TOP + number * ROW_HEIGHT, heading, lines, runs)
    return "\n".join([*parts, "</svg>", ""])


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
