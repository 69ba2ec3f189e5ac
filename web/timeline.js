// @ts-check
// Who had which GPU when: a row for each GPU, a span for each time of a user, and the same as a table.
import {attribute, each, h, part, say, show} from "./dom.js";
import {clock, day, hours, moment, visible} from "./format.js";
import {gpu_key} from "./model.js";
import {colours_of} from "./people.js";

/** @typedef {import("./model.js").Timeline} Timeline */
/** @typedef {import("./model.js").Row} Row */
/** @typedef {import("./model.js").Host} Host */
/** @typedef {{user: string, from: number, to: number, lane: number, lanes: number, shared: boolean}} Piece */
/** @typedef {{key: string, name: string, pieces: Piece[], totals: Map<string, number>}} Line */

const HOUR = 3600e3;

const grid = h("div", {class: "grid", "aria-hidden": "true"});
const rows = h("div", {class: "rows"});
const axis = h("div", {class: "axis", "aria-hidden": "true"});
const legend = h("ul", {class: "plain legend", "aria-label": "Users in the timeline"});
const body = h("tbody");
const table = h("details", {}, h("summary", {}, "As a table"),
    h("table", {}, h("thead", {}, h("tr", {}, ...["GPU", "User", "Hours"].map((text) => h("th", {scope: "col"}, text)))),
        body));
const empty = h("div", {class: "empty"}, h("p", {}, "No jobs yet:"), h("code", {}, "berth run -- python train.py"));
const chart = h("div", {class: "chart"}, h("div", {class: "plane"}, grid, rows), axis);
const whole = h("div", {}, chart, legend, table);
show(empty, false);

/** @type {{since: number, until: number} | null} */
let range = null;

/**
 * @param {Timeline} timeline
 * @param {Host[]} hosts as they are now: their GPUs have a row, used or not
 */
export function show_timeline(timeline, hosts) {
  const place = part("timeline");
  if (!whole.isConnected) place.replaceChildren(empty, whole);
  range = {since: Date.parse(timeline.since), until: Date.parse(timeline.until)};
  const lines = lines_of(timeline, hosts);
  const users = total_by_user(lines);
  show(empty, users.length === 0);
  show(whole, users.length > 0);
  draw_ticks(range.since, range.until);
  each(rows, lines, (line) => line.key, row_view);
  each(legend, users, ([user]) => user, legend_view);
  const figures = lines.flatMap((line) => [...line.totals].sort((a, b) => b[1] - a[1]).map(
      ([user, time]) => ({line, user, time})));
  each(body, figures, ({line, user}) => `${line.key} ${user}`, figure_view);
  label_what_fits();
}

/** @param {Timeline} timeline @param {Host[]} hosts @returns {Line[]} */
function lines_of(timeline, hosts) {
  /** @type {Map<string, Row>} */
  const found = new Map(timeline.gpus.map((row) => [gpu_key(row.host, row), row]));
  for (const host of hosts) {
    for (const gpu of host.gpus) {
      const key = gpu_key(host.host, gpu);
      if (!found.has(key)) {
        found.set(key, {host: host.host, uuid: gpu.uuid ?? "", index: gpu.index, name: gpu.name, spans: []});
      }
    }
  }
  const several = new Set([...found.values()].map((row) => row.host)).size > 1;
  const sorted = [...found].sort(([, a], [, b]) => a.host.localeCompare(b.host) ||
    String(a.index).localeCompare(String(b.index), undefined, {numeric: true}));
  return sorted.map(([key, row]) => {
    const pieces = in_lanes(row.spans.map((span) => ({user: span.user, from: Date.parse(span.start),
      to: Date.parse(span.end), lane: 0, lanes: 1, shared: span.shared})));
    const totals = new Map();
    for (const piece of pieces) totals.set(piece.user, (totals.get(piece.user) ?? 0) + piece.to - piece.from);
    const index = row.index === null ? visible(row.uuid).slice(0, 12) : row.index;
    return {key, name: several ? `${visible(row.host)} ${index}` : `GPU ${index}`, pieces, totals};
  });
}

/**
 * Those who share a GPU at a time stand one above the other.
 * @param {Piece[]} pieces
 */
function in_lanes(pieces) {
  pieces.sort((a, b) => a.from - b.from);
  /** @type {Piece[]} */
  let together = [];
  let end = -Infinity;
  /** @type {number[]} */
  let ends = [];
  const close = () => together.forEach((piece) => (piece.lanes = ends.length));
  for (const piece of pieces) {
    if (piece.from >= end) {
      close();
      together = [];
      ends = [];
    }
    let lane = ends.findIndex((time) => time <= piece.from);
    if (lane < 0) lane = ends.length;
    ends[lane] = piece.to;
    piece.lane = lane;
    together.push(piece);
    end = Math.max(end, piece.to);
  }
  close();
  return pieces;
}

/** @param {Line[]} lines who had most first */
function total_by_user(lines) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const line of lines) for (const [user, time] of line.totals) sums.set(user, (sums.get(user) ?? 0) + time);
  return [...sums].sort((a, b) => b[1] - a[1]);
}

/** @param {number} time where it is in the range, in percent */
function place_of(time) {
  if (!range) return 0;
  return Math.min(100, Math.max(0, (100 * (time - range.since)) / (range.until - range.since)));
}

/** @returns {import("./dom.js").View<Line>} */
function row_view() {
  const name = h("div", {class: "name"});
  const track = h("div", {class: "spans", role: "img"});
  return {
    node: h("div", {class: "row"}, name, track),
    update(line) {
      say(name, line.name);
      attribute(name, "title", line.name);
      const who = [...line.totals].sort((a, b) => b[1] - a[1]).map(
          ([user, time]) => `${visible(user)} ${hours(time / HOUR)} hours`);
      attribute(track, "aria-label", `${line.name}: ${who.join(", ") || "nobody"}`);
      const lanes = Math.max(1, ...line.pieces.map((piece) => piece.lanes));
      track.style.height = `${lanes === 1 ? 28 : Math.min(72, 19 * lanes)}px`;
      each(track, line.pieces, (piece) => `${piece.user} ${piece.from}`, span_view);
    },
  };
}

/** @returns {import("./dom.js").View<Piece>} */
function span_view() {
  const label = h("bdi");
  const node = h("div", {}, label);
  return {
    node,
    update(piece) {
      const left = place_of(piece.from);
      attribute(node, "class", `span ${colours_of(piece.user)}`);
      node.style.left = `${left}%`;
      node.style.width = `${place_of(piece.to) - left}%`;
      node.style.top = `${(100 * piece.lane) / piece.lanes}%`;
      node.style.height = `${100 / piece.lanes}%`;
      const user = visible(piece.user);
      say(label, user);
      const ended = piece.to >= (range?.until ?? 0) - 1000 ? "now" : moment(piece.to);
      attribute(node, "title", `${user}${piece.shared ? ", shared" : ""}: ${moment(piece.from)} to ${ended}`);
    },
  };
}

/** @returns {import("./dom.js").View<[string, number]>} */
function legend_view() {
  const swatch = h("span", {"aria-hidden": "true"});
  const name = h("bdi");
  return {
    node: h("li", {}, swatch, name),
    update([user]) {
      attribute(swatch, "class", `swatch ${colours_of(user)}`);
      say(name, visible(user));
    },
  };
}

/** @returns {import("./dom.js").View<{line: Line, user: string, time: number}>} */
function figure_view() {
  const cells = [h("th", {scope: "row"}), h("td"), h("td", {class: "number"})];
  return {
    node: h("tr", {}, ...cells),
    update({line, user, time}) {
      say(cells[0], line.name);
      say(cells[1], visible(user));
      say(cells[2], hours(time / HOUR));
    },
  };
}

/** @param {number} since @param {number} until */
function draw_ticks(since, until) {
  const by_day = until - since > 2 * 24 * HOUR;
  const at = new Date(since);
  at.setHours(by_day ? 24 : at.getHours() - (at.getHours() % 3) + 3, 0, 0, 0);
  /** @type {{time: number, text: string}[]} */
  const ticks = [];
  while (at.getTime() < until) {
    const time = at.getTime();
    ticks.push({time, text: by_day ? day(time) : clock(time)});
    if (by_day) at.setDate(at.getDate() + 1);
    else at.setHours(at.getHours() + 3);
  }
  const near = (/** @type {number} */ time) => place_of(time) > 91 || place_of(time) < 1.5;
  each(grid, ticks, (tick) => `${tick.time}`, () => tick_view(""));
  each(axis, [...ticks.filter((tick) => !near(tick.time)), {time: until, text: "now"}], (tick) => `${tick.text}${tick.time}`,
      () => tick_view("label"));
}

/** @param {string} kind @returns {import("./dom.js").View<{time: number, text: string}>} */
function tick_view(kind) {
  const node = h("div", {class: `tick ${kind}`});
  return {
    node,
    update(tick, index) {
      node.style.left = `${place_of(tick.time)}%`;
      if (kind) say(node, tick.text);
      node.classList.toggle("odd", index % 2 === 1 && tick.text !== "now");
      node.classList.toggle("last", tick.text === "now");
    },
  };
}

/** A name is shown where there is room for all of it. */
function label_what_fits() {
  const full = rows.querySelector(".spans")?.clientWidth ?? 0;
  for (const node of rows.querySelectorAll(".span")) {
    if (!(node instanceof HTMLElement)) continue;
    const room = (full * Number.parseFloat(node.style.width)) / 100;
    const tall = node.clientHeight > 15;
    node.classList.toggle("named", tall && room > 12 + 7.5 * (node.textContent?.length ?? 0));
  }
}
new ResizeObserver(label_what_fits).observe(chart);
