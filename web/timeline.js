// @ts-check
// The timeline of GPU use: a row for each GPU with a span for each period of a user, also the expected ones of the future,
// and a row for the queue with the expected starts. The past is also a table.
import {element, h, set_attribute, set_text, set_visible, update_children} from "./dom.js";
import {matches_user} from "./filter.js";
import {clock, day, hours, moment, plural, printable} from "./format.js";
import {gpu_key} from "./model.js";
import {attach_popup} from "./timeline_popup.js";
import {user_classes} from "./user_colours.js";

/** @typedef {import("./model.js").Timeline} Timeline */
/** @typedef {import("./model.js").Row} Row */
/** @typedef {import("./model.js").Host} Host */
/** @typedef {import("./model.js").Lease} Lease */
/** @typedef {import("./model.js").Ticket} Ticket */
/**
 * A span. `lease`: the expected rest of that lease. `ticket`: its expected run. Neither: the past, `leases` of them.
 * @typedef {{key: string, user: string, from: number, to: number, lane: number, lanes: number, leases: number,
 *   shared: boolean, lease?: Lease, ticket?: Ticket}} Piece
 */
/**
 * @typedef {{key: string, name: string, host: string, uuid: string, pieces: Piece[], totals: Map<string, number>}} Line
 */

const HOUR = 3600e3;
// The future has at most this share of the period, and at least the other if there is any.
const MAX_FUTURE = 1 / 3;
const MIN_FUTURE = 1 / 12;

const grid = h("div", {class: "grid", "aria-hidden": "true"});
const rows = h("div", {class: "rows"});
const axis = h("div", {class: "axis", "aria-hidden": "true"});
const now_line = h("div", {class: "now", "aria-hidden": "true"});
const legend = h("ul", {class: "plain legend", "aria-label": "Users in the timeline"});
const future_hint = h("p", {class: "hint"}, "After “now”: announced and estimated ends of leases, and estimated starts of tickets.");
const body = h("tbody");
const table = h("details", {}, h("summary", {}, "As a table"),
    h("table", {}, h("thead", {}, h("tr", {}, ...["GPU", "User", "Hours"].map((text) => h("th", {scope: "col"}, text)))),
        body));
const part_hint = h("p", {class: "hint"}, "Only a part: the history of this period has too many spans to show all.");
const empty = h("div", {class: "empty"}, h("p", {}, "No jobs yet:"), h("code", {}, "berth run -- python train.py"));
const chart = h("div", {class: "chart"}, h("div", {class: "plane"}, grid, rows, h("div", {class: "over"}, now_line)), axis);
const content = h("div", {}, chart, legend, future_hint, part_hint, table);
const popup = attach_popup(chart);
set_visible(empty, false);

/** @type {Timeline | null} */
let shown = null;
let range = {since: 0, now: 0, until: 1};
let period = "24h";
let future_key = "";

/**
 * @param {Timeline} timeline
 * @param {Host[]} hosts the current ones: each of their GPUs has a row, even if it was not used
 * @param {string} new_period as in the request of the timeline
 */
export function show_timeline(timeline, hosts, new_period) {
  shown = timeline;
  period = new_period;
  popup.forget_jobs();
  draw_timeline(hosts);
}

/** Draws the timeline again if the expected ends and starts have changed. @param {Host[]} hosts */
export function update_future(hosts) {
  if (shown && make_future_key(hosts) !== future_key) draw_timeline(hosts);
}

/** To the minute, because estimates change all the time. @param {Host[]} hosts */
function make_future_key(hosts) {
  return hosts.flatMap((host) => [
    ...host.gpus.flatMap((gpu) => gpu.leases.map((lease) => `${lease.id}${lease.ends && Math.round(Date.parse(lease.ends) / 60e3)}`)),
    ...host.queue.map((ticket) => `${ticket.ticket}${ticket.starts && Math.round(Date.parse(ticket.starts) / 60e3)}`),
  ]).join();
}

/** @param {Host[]} hosts */
export function draw_timeline(hosts) {
  if (!shown) return;
  const place = element("timeline");
  if (!content.isConnected) place.replaceChildren(empty, content);
  set_visible(empty, false); // also if an error ends this function
  future_key = make_future_key(hosts);
  const lines = make_lines(shown, hosts);
  const pieces = lines.flatMap((line) => line.pieces);
  set_range(shown, pieces);
  const users = total_by_user(lines);
  set_visible(empty, pieces.length === 0);
  set_visible(content, pieces.length > 0);
  const has_future = range.until > range.now;
  set_visible(future_hint, has_future);
  set_visible(part_hint, shown.truncated);
  set_visible(now_line, has_future);
  now_line.style.left = `${position_percent(range.now)}%`;
  draw_ticks();
  update_children(rows, lines, (line) => line.key, row_view);
  update_children(legend, users, ([user]) => user, legend_view);
  const figures = lines.flatMap((line) => [...line.totals].sort((a, b) => b[1] - a[1]).map(
      ([user, time]) => ({line, user, time})));
  update_children(body, figures, ({line, user}) => `${line.key} ${user}`, figure_view);
  update_span_labels();
  popup.ensure_tab_stop();
}

/** @param {Timeline} timeline @param {Piece[]} pieces */
function set_range(timeline, pieces) {
  const since = Date.parse(timeline.since);
  const now = Date.parse(timeline.until);
  const wanted = pieces.reduce((latest, piece) => Math.max(latest, piece.to), now) - now;
  const future = wanted > 0 ? Math.min(Math.max(wanted * 1.05, (now - since) * MIN_FUTURE), (now - since) * MAX_FUTURE) : 0;
  range = {since, now, until: now + future};
}

/** @param {Timeline} timeline @param {Host[]} hosts @returns {Line[]} */
function make_lines(timeline, hosts) {
  const now = Date.parse(timeline.until);
  /** @type {Map<string, Row>} */
  const found = new Map(timeline.gpus.map((row) => [gpu_key(row.host, row), row]));
  /** @type {Map<string, Piece[]>} */
  const future = new Map();
  for (const host of hosts) {
    for (const gpu of host.gpus) {
      const key = gpu_key(host.host, gpu);
      future.set(key, gpu.leases.flatMap((lease) => expected_rest(lease, now)));
      if (!found.has(key)) {
        found.set(key, {host: host.host, uuid: gpu.uuid ?? "", index: gpu.index, name: gpu.name, spans: []});
      }
    }
  }
  const several = new Set([...found.values()].map((row) => row.host)).size > 1;
  // A GPU that is not there any more comes after those that are.
  const is_former = (/** @type {string} */ key) => Number(!future.has(key));
  const sorted = [...found].sort(([key_a, a], [key_b, b]) => a.host.localeCompare(b.host) || is_former(key_a) - is_former(key_b) ||
    String(a.index).localeCompare(String(b.index), undefined, {numeric: true}));
  const lines = sorted.map(([key, row]) => {
    const past = row.spans.map((span) => ({key: `${span.user} ${span.start}`, user: span.user, from: Date.parse(span.start),
      to: Date.parse(span.end), lane: 0, lanes: 1, leases: span.leases, shared: span.shared}));
    const totals = new Map();
    for (const piece of past) totals.set(piece.user, (totals.get(piece.user) ?? 0) + piece.to - piece.from);
    const index = row.index === null ? printable(row.uuid).slice(0, 12) : row.index;
    return {key, name: several ? `${printable(row.host)} ${index}` : `GPU ${index}`, host: row.host, uuid: row.uuid,
      pieces: assign_lanes([...past, ...(future.get(key) ?? [])], timeline.resolution_s * 1000), totals};
  });
  for (const host of hosts) {
    const pieces = assign_lanes(host.queue.flatMap((ticket) => expected_run(ticket, now)), 0);
    if (pieces.length === 0) continue;
    lines.push({key: `queue ${host.host}`, name: several ? `${printable(host.host)} queue` : "Queue", host: host.host, uuid: "",
      pieces, totals: new Map()});
  }
  return lines;
}

/** @param {Lease} lease @param {number} now @returns {Piece[]} */
function expected_rest(lease, now) {
  const to = lease.ends === null ? 0 : Date.parse(lease.ends);
  if (to <= now) return [];
  return [{key: `rest ${lease.id}`, user: lease.user, from: now, to, lane: 0, lanes: 1, leases: 1,
    shared: !lease.exclusive, lease}];
}

/** @param {Ticket} ticket @param {number} now @returns {Piece[]} */
function expected_run(ticket, now) {
  if (ticket.starts === null) return [];
  const from = Math.max(now, Date.parse(ticket.starts));
  // A run time that is unknown is drawn as half an hour.
  return [{key: `run ${ticket.ticket}`, user: ticket.user, from, to: from + (ticket.time_s ?? 1800) * 1000, lane: 0,
    lanes: 1, leases: 1, shared: false, ticket}];
}

/**
 * Puts spans that overlap (users who share a GPU) into different lanes, one above the other.
 * @param {Piece[]} pieces
 * @param {number} tolerance overlaps up to this time come from rounding
 */
function assign_lanes(pieces, tolerance) {
  pieces.sort((a, b) => a.from - b.from);
  /** @type {Piece[]} */
  let group = [];
  let end = -Infinity;
  /** @type {number[]} */
  let ends = [];
  const close = () => group.forEach((piece) => (piece.lanes = ends.length));
  for (const piece of pieces) {
    if (piece.from >= end - tolerance) {
      close();
      group = [];
      ends = [];
    }
    let lane = ends.findIndex((time) => time <= piece.from + tolerance);
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
 * The total time of each user, largest first; users with only a future have 0.
 * @param {Line[]} lines
 */
function total_by_user(lines) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const line of lines) {
    for (const [user, time] of line.totals) sums.set(user, (sums.get(user) ?? 0) + time);
    for (const piece of line.pieces) if (!sums.has(piece.user)) sums.set(piece.user, 0);
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}

/**
 * The position of a time in the range, in percent.
 * @param {number} time
 */
function position_percent(time) {
  return Math.min(100, Math.max(0, (100 * (time - range.since)) / (range.until - range.since)));
}

/** @returns {import("./dom.js").View<Line>} */
function row_view() {
  const name = h("div", {class: "name"});
  const track = h("div", {class: "spans", role: "group"});
  return {
    node: h("div", {class: "row"}, name, track),
    update(line) {
      set_text(name, line.name);
      set_attribute(name, "title", line.name);
      const users = [...line.totals].sort((a, b) => b[1] - a[1]).map(
          ([user, time]) => `${printable(user)} ${hours(time / HOUR)} hours`);
      set_attribute(track, "aria-label", line.pieces.some((piece) => piece.ticket) ?
        `${line.name}: ${plural(line.pieces.length, "expected start")}` : `${line.name}: ${users.join(", ") || "not leased"}`);
      const lanes = line.pieces.reduce((most, piece) => Math.max(most, piece.lanes), 1);
      track.style.height = `${Math.min(78, Math.max(28, 13 * lanes))}px`;
      update_children(track, line.pieces, (piece) => piece.key, () => span_view(line));
    },
  };
}

/** @param {Line} line @returns {import("./dom.js").View<Piece>} */
function span_view(line) {
  const label = h("bdi");
  const node = h("button", {type: "button", tabindex: "-1"}, label);
  /** @type {Piece} */
  let last;
  popup.watch(node, () => ({piece: last, line, period}));
  return {
    node,
    update(piece) {
      last = piece;
      const left = position_percent(piece.from);
      const right = position_percent(piece.to);
      const future = piece.lease || piece.ticket;
      set_attribute(node, "class", ["span", user_classes(piece.user), future && "future",
        piece.to > range.until && "cut", !matches_user(piece.user) && "dim"].filter(Boolean).join(" "));
      node.style.left = `${left}%`;
      node.style.width = `${right - left}%`;
      node.style.top = `${(100 * piece.lane) / piece.lanes}%`;
      node.style.height = `${100 / piece.lanes}%`;
      const user = printable(piece.user);
      set_text(label, user);
      const words = piece.ticket ? "expected to start" : piece.lease ? "expected to run on" : plural(piece.leases, "lease");
      set_attribute(node, "aria-label", `${user}, ${words}: ${moment(piece.from)} to ` +
        (!future && piece.to >= range.now - 1000 ? "now" : moment(piece.to)));
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

function draw_ticks() {
  const length = range.until - range.since;
  const days = length > 15 * 24 * HOUR ? 4 : length > 2 * 24 * HOUR ? 1 : 0;
  const step = length > 12 * HOUR ? 3 : 1;
  const at = new Date(range.since);
  at.setHours(days ? 24 : at.getHours() - (at.getHours() % step) + step, 0, 0, 0);
  /** @type {{time: number, text: string}[]} */
  const ticks = [];
  while (at.getTime() < range.until) {
    const time = at.getTime();
    ticks.push({time, text: days ? day(time) : clock(time)});
    if (days) at.setDate(at.getDate() + days);
    else at.setHours(at.getHours() + step);
  }
  const label_width = ((days ? 60 : 36) * 100) / (grid.clientWidth || 800);
  const is_readable = (/** @type {number} */ time) => position_percent(time) > 1.5 && position_percent(time) < 96 &&
    Math.abs(position_percent(time) - position_percent(range.now)) > label_width;
  update_children(grid, ticks, (tick) => `${tick.time}`, () => tick_view(""));
  update_children(axis, [...ticks.filter((tick) => is_readable(tick.time)), {time: range.now, text: "now"}],
      (tick) => `${tick.text}${tick.time}`, () => tick_view("label"));
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
      node.classList.toggle("last", tick.text === "now" && range.until === range.now);
    },
  };
}

/** Shows the user's name in a span only if all of it fits. */
function update_span_labels() {
  const total_width = rows.querySelector(".spans")?.clientWidth ?? 0;
  const nodes = /** @type {HTMLElement[]} */ ([...rows.querySelectorAll(".span")]);
  // First all sizes, then all changes: a size after a change makes the browser compute the layout again.
  const named = nodes.map((node) => {
    const room = (total_width * Number.parseFloat(node.style.width)) / 100;
    return node.clientHeight > 12 && room > 12 + 7.5 * (node.textContent?.length ?? 0);
  });
  nodes.forEach((node, index) => node.classList.toggle("named", named[index]));
}
new ResizeObserver(update_span_labels).observe(chart);
