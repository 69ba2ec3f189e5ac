// @ts-check
// What a span of the timeline stands for, beside the span that has the pointer or the focus: its jobs with label, command
// and end. The jobs are requested when they are shown for the first time.
import {call} from "./api.js";
import {describe_end, job_title, user_mark} from "./cards.js";
import {h, set_text, set_visible, update_children} from "./dom.js";
import {duration, moment, now, plural, printable} from "./format.js";

/** @typedef {import("./timeline.js").Piece} Piece */
/** @typedef {import("./timeline.js").Line} Line */
/** @typedef {import("./model.js").LoggedLease} LoggedLease */
/** @typedef {{id: string, title: string, end: string}} Job */
/** @typedef {{piece: Piece, line: Line, period: string}} About */

const MAX_JOBS = 5;
const HIDE_DELAY_MS = 150; // so that the pointer can move to the popup

/** @param {LoggedLease} lease @returns {string} how it ended, in words */
export function describe_ending(lease) {
  switch (lease.ending) {
    case "exited": return `exit code ${lease.exit_code}`;
    case "killed": return `killed by signal ${lease.signal}`;
    case "lost": return "lost: its end was not recorded";
    default: return printable(lease.ending, 40);
  }
}

/** @param {LoggedLease} lease @returns {Job} */
function past_job(lease) {
  const start = Date.parse(lease.granted);
  const end = lease.ended === null ? now() : Date.parse(lease.ended);
  return {id: lease.lease, title: job_title(lease) || "The command is not shown to other users.",
    end: `${moment(start)}, ${duration((end - start) / 1000)}, ${describe_ending(lease)}`};
}

/** @param {HTMLElement} chart gets the popup, and handles the arrow keys of its spans */
export function attach_popup(chart) {
  const owner = user_mark();
  const place = h("span", {class: "since"});
  const times = h("p", {class: "hint"});
  const list = h("ul", {class: "plain"});
  const more = h("p", {class: "hint"});
  const node = h("div", {class: "popup", role: "tooltip", id: "timeline-popup", hidden: true},
      h("div", {class: "line"}, ...owner.nodes, place), times, list, more);
  chart.append(node);
  /** @type {HTMLElement | null} */
  let anchor = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let hide_timer;
  /** @type {Map<string, Promise<LoggedLease[] | string>>} */
  const logs = new Map();

  /** @param {About} about @returns {Promise<LoggedLease[] | string>} the leases of a GPU, or why they are unknown */
  function read_jobs({line, period}) {
    let log = logs.get(line.key);
    if (!log) {
      const query = new URLSearchParams({since: period, host: line.host, gpu: line.uuid, limit: "2000"});
      log = call(`log?${query}`).then((answer) => answer.data?.leases ?? answer.problem);
      logs.set(line.key, log);
    }
    return log;
  }

  /** @param {Job[]} jobs @param {string} note */
  function set_jobs(jobs, note) {
    update_children(list, jobs, (job) => job.id, job_view);
    set_text(more, note);
    set_visible(more, note !== "");
    move();
  }

  /** @param {About} about */
  async function show_jobs(about) {
    const {piece} = about;
    if (piece.lease) return set_jobs([{id: piece.key, title: job_title(piece.lease), end: describe_end(piece.lease)}], "");
    if (piece.ticket) {
      return set_jobs([{id: piece.key, title: job_title(piece.ticket), end: printable(piece.ticket.request, 300)}],
          piece.ticket.time_s === null ? "Its run time is unknown." : "");
    }
    const before = anchor;
    set_jobs([], `${plural(piece.leases, "lease")} …`);
    const log = await read_jobs(about);
    if (anchor !== before) return;
    if (typeof log === "string") return set_jobs([], log);
    const matching = log.filter((lease) => lease.user === piece.user && lease.within === null &&
      Date.parse(lease.granted) <= piece.to && (lease.ended === null || Date.parse(lease.ended) >= piece.from));
    set_jobs(matching.slice(-MAX_JOBS).reverse().map(past_job),
        matching.length > MAX_JOBS ? `and ${matching.length - MAX_JOBS} more` : matching.length ? "" : "No details are known.");
  }

  /** Places the popup below the span, or above it if there is no room, inside the window. */
  function move() {
    if (!anchor) return;
    const [outer, span] = [chart.getBoundingClientRect(), anchor.getBoundingClientRect()];
    const [width, height] = [node.offsetWidth, node.offsetHeight];
    const left = Math.min(Math.max(span.left + span.width / 2 - width / 2, 8), document.documentElement.clientWidth - width - 8);
    const above = span.bottom + height + 12 > document.documentElement.clientHeight && span.top > height + 12;
    node.style.left = `${left - outer.left}px`;
    node.style.top = `${(above ? span.top - height - 4 : span.bottom + 4) - outer.top}px`;
  }

  /** @param {HTMLElement} span @param {About} about */
  function show(span, about) {
    clearTimeout(hide_timer);
    if (anchor === span) return;
    anchor?.removeAttribute("aria-describedby");
    anchor = span;
    const {piece, line} = about;
    owner.update(piece.user);
    set_text(place, line.name + (piece.shared ? ", shared" : ""));
    const running = !piece.lease && !piece.ticket && piece.to >= now() - 90_000;
    set_text(times, piece.ticket ? `expected start: ${moment(piece.from)}` :
      `${moment(piece.from)} to ${running ? "now" : moment(piece.to)}`);
    set_visible(node, true);
    span.setAttribute("aria-describedby", node.id);
    show_jobs(about);
  }

  function hide() {
    clearTimeout(hide_timer);
    anchor?.removeAttribute("aria-describedby");
    anchor = null;
    set_visible(node, false);
  }

  const hide_soon = () => {
    clearTimeout(hide_timer);
    hide_timer = setTimeout(hide, HIDE_DELAY_MS);
  };
  node.addEventListener("pointerenter", () => clearTimeout(hide_timer));
  node.addEventListener("pointerleave", hide_soon);

  // The spans are one stop of the Tab key; arrows move between them.
  const spans_of = (/** @type {Element | null | undefined} */ row) =>
    /** @type {HTMLElement[]} */ ([...(row?.querySelectorAll(".span") ?? [])]);
  chart.addEventListener("keydown", (event) => {
    const span = event.target;
    if (event.key === "Escape") return hide();
    if (!(span instanceof HTMLElement) || !span.classList.contains("span")) return;
    const own = spans_of(span.closest(".row"));
    const at = own.indexOf(span);
    /** @type {HTMLElement | undefined} */
    let next;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") next = own[at + (event.key === "ArrowRight" ? 1 : -1)];
    else if (event.key === "Home" || event.key === "End") next = own.at(event.key === "Home" ? 0 : -1);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const rows = [...chart.querySelectorAll(".row")].filter((row) => spans_of(row).length > 0);
      const row = rows[rows.indexOf(/** @type {Element} */ (span.closest(".row"))) + (event.key === "ArrowDown" ? 1 : -1)];
      const distance = (/** @type {HTMLElement} */ other) => Math.abs(other.offsetLeft - span.offsetLeft);
      next = spans_of(row).sort((a, b) => distance(a) - distance(b))[0];
    } else return;
    event.preventDefault();
    next?.focus();
  });
  chart.addEventListener("focusin", (event) => {
    if (!(event.target instanceof HTMLElement) || !event.target.classList.contains("span")) return;
    for (const old of chart.querySelectorAll('.span[tabindex="0"]')) old.setAttribute("tabindex", "-1");
    event.target.setAttribute("tabindex", "0");
  });

  return {
    /** Shows the popup while this span has the pointer or the focus. @param {HTMLElement} span @param {() => About} about */
    watch(span, about) {
      span.addEventListener("pointerenter", () => show(span, about()));
      span.addEventListener("focus", () => show(span, about()));
      span.addEventListener("click", () => show(span, about()));
      span.addEventListener("pointerleave", () => document.activeElement === span || hide_soon());
      span.addEventListener("blur", hide_soon);
    },
    /** The jobs may have changed since they were requested. */
    forget_jobs() {
      logs.clear();
    },
    /** Call it after spans were removed. */
    ensure_tab_stop() {
      if (anchor && !anchor.isConnected) hide();
      if (!chart.querySelector('.span[tabindex="0"]')) chart.querySelector(".span")?.setAttribute("tabindex", "0");
    },
  };
}

/** @returns {import("./dom.js").View<Job>} */
function job_view() {
  const title = h("bdi", {class: "what"});
  const end = h("span", {class: "hint"});
  return {
    node: h("li", {}, title, end),
    update(job) {
      set_text(title, job.title);
      set_text(end, job.end);
    },
  };
}
