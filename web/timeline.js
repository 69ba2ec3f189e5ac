// @ts-check
// The timeline of GPU use: a row for each GPU, a span for each period of a user, and the same as a table.
import {element, h, set_attribute, set_text, set_visible, update_children} from "./dom.js";
import {clock, day, hours, moment, printable} from "./format.js";
import {gpu_key} from "./model.js";
import {user_classes} from "./user_colours.js";

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
const content = h("div", {}, chart, legend, table);
set_visible(empty, false);

/** @type {{since: number, until: number} | null} */
let range = null;

/**
 * @param {Timeline} timeline
 * @param {Host[]} hosts the current ones: each of their GPUs has a row, even if it was not used
 */
export function show_timeline(timeline, hosts) {
  const place = element("timeline");
  if (!content.isConnected) place.replaceChildren(empty, content);
  range = {since: Date.parse(timeline.since), until: Date.parse(timeline.until)};
  const lines = make_lines(timeline, hosts);
  const users = total_by_user(lines);
  set_visible(empty, users.length === 0);
  set_visible(content, users.length > 0);
  draw_ticks(range.since, range.until);
  update_children(rows, lines, (line) => line.key, row_view);
  update_children(legend, users, ([user]) => user, legend_view);
  const figures = lines.flatMap((line) => [...line.totals].sort((a, b) => b[1] - a[1]).map(
      ([user, time]) => ({line, user, time})));
  update_children(body, figures, ({line, user}) => `${line.key} ${user}`, figure_view);
  update_span_labels();
}

/** @param {Timeline} timeline @param {Host[]} hosts @returns {Line[]} */
function make_lines(timeline, hosts) {
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
    const pieces = assign_lanes(row.spans.map((span) => ({user: span.user, from: Date.parse(span.start),
      to: Date.parse(span.end), lane: 0, lanes: 1, shared: span.shared})));
    const totals = new Map();
    for (const piece of pieces) totals.set(piece.user, (totals.get(piece.user) ?? 0) + piece.to - piece.from);
    const index = row.index === null ? printable(row.uuid).slice(0, 12) : row.index;
    return {key, name: several ? `${printable(row.host)} ${index}` : `GPU ${index}`, pieces, totals};
  });
}

/**
 * Puts spans that overlap (users who share a GPU) into different lanes, one above the other.
 * @param {Piece[]} pieces
 */
function assign_lanes(pieces) {
  pieces.sort((a, b) => a.from - b.from);
  /** @type {Piece[]} */
  let group = [];
  let end = -Infinity;
  /** @type {number[]} */
  let ends = [];
  const close = () => group.forEach((piece) => (piece.lanes = ends.length));
  for (const piece of pieces) {
    if (piece.from >= end) {
      close();
      group = [];
      ends = [];
    }
    let lane = ends.findIndex((time) => time <= piece.from);
    if (lane < 0) lane = ends.length;
    ends[lane] = piece.to;
    piece.lane = lane;
    group.push(piece);
    end = Math.max(end, piece.to);
  }
  close();
  return pieces;
}

/**
 * The total time of each user, largest first.
 * @param {Line[]} lines
 */
function total_by_user(lines) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const line of lines) for (const [user, time] of line.totals) sums.set(user, (sums.get(user) ?? 0) + time);
  return [...sums].sort((a, b) => b[1] - a[1]);
}

/**
 * The position of a time in the range, in percent.
 * @param {number} time
 */
function position_percent(time) {
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
      set_text(name, line.name);
      set_attribute(name, "title", line.name);
      const who = [...line.totals].sort((a, b) => b[1] - a[1]).map(
          ([user, time]) => `${printable(user)} ${hours(time / HOUR)} hours`);
      set_attribute(track, "aria-label", `${line.name}: ${who.join(", ") || "not leased"}`);
      const lanes = Math.max(1, ...line.pieces.map((piece) => piece.lanes));
      track.style.height = `${lanes === 1 ? 28 : Math.min(72, 19 * lanes)}px`;
      update_children(track, line.pieces, (piece) => `${piece.user} ${piece.from}`, span_view);
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
      const left = position_percent(piece.from);
      set_attribute(node, "class", `span ${user_classes(piece.user)}`);
      node.style.left = `${left}%`;
      node.style.width = `${position_percent(piece.to) - left}%`;
      node.style.top = `${(100 * piece.lane) / piece.lanes}%`;
      node.style.height = `${100 / piece.lanes}%`;
      const user = printable(piece.user);
      set_text(label, user);
      const ended = piece.to >= (range?.until ?? 0) - 1000 ? "now" : moment(piece.to);
      set_attribute(node, "title", `${user}${piece.shared ? ", shared" : ""}: ${moment(piece.from)} to ${ended}`);
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
      set_attribute(swatch, "class", `swatch ${user_classes(user)}`);
      set_text(name, printable(user));
    },
  };
}

/** @returns {import("./dom.js").View<{line: Line, user: string, time: number}>} */
function figure_view() {
  const cells = [h("th", {scope: "row"}), h("td"), h("td", {class: "number"})];
  return {
    node: h("tr", {}, ...cells),
    update({line, user, time}) {
      set_text(cells[0], line.name);
      set_text(cells[1], printable(user));
      set_text(cells[2], hours(time / HOUR));
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
  const is_near_edge = (/** @type {number} */ time) => position_percent(time) > 91 || position_percent(time) < 1.5;
  update_children(grid, ticks, (tick) => `${tick.time}`, () => tick_view(""));
  update_children(axis, [...ticks.filter((tick) => !is_near_edge(tick.time)), {time: until, text: "now"}], (tick) => `${tick.text}${tick.time}`,
      () => tick_view("label"));
}

/** @param {string} kind @returns {import("./dom.js").View<{time: number, text: string}>} */
function tick_view(kind) {
  const node = h("div", {class: `tick ${kind}`});
  return {
    node,
    update(tick, index) {
      node.style.left = `${position_percent(tick.time)}%`;
      if (kind) set_text(node, tick.text);
      node.classList.toggle("odd", index % 2 === 1 && tick.text !== "now");
      node.classList.toggle("last", tick.text === "now");
    },
  };
}

/** Shows the user's name in a span only if all of it fits. */
function update_span_labels() {
  const total_width = rows.querySelector(".spans")?.clientWidth ?? 0;
  for (const node of rows.querySelectorAll(".span")) {
    if (!(node instanceof HTMLElement)) continue;
    const room = (total_width * Number.parseFloat(node.style.width)) / 100;
    const tall = node.clientHeight > 15;
    node.classList.toggle("named", tall && room > 12 + 7.5 * (node.textContent?.length ?? 0));
  }
}
new ResizeObserver(update_span_labels).observe(chart);
