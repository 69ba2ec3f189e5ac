// @ts-check
// The page of `berth serve`: passes the events of the stream to the parts that show them.
import {call, check_token, store_token, store_token_from_url, stored_token} from "./api.js";
import {draw_plots, show_hosts, state_icon} from "./cards.js";
import {element, h, set_attribute, set_text, set_visible, update_children} from "./dom.js";
import {watch_endings} from "./changes.js";
import {add_users, filter_hosts, filter_jobs, has_job_filter, is_state_chosen, toggle_state, watch_filter} from "./filter.js";
import {moment, now, plural, printable, set_clock} from "./format.js";
import {show_jobs, watch_jobs} from "./jobs.js";
import {gpu_key, server, STATES} from "./model.js";
import {is_notifying, notify_changes, notify_ends} from "./notify.js";
import {show_idle, show_queues} from "./queue.js";
import {add_sample, set_samples} from "./samples.js";
import {stream} from "./stream.js";
import {draw_timeline, show_timeline, update_future} from "./timeline.js";
import {show_usage} from "./usage.js";

/** @typedef {import("./model.js").Host} Host */
/** @typedef {import("./model.js").State} State */

/** @type {Host[]} */
let hosts = [];
/** @type {import("./model.js").JobList | null} */
let jobs = null; // null: the server sends none, because the viewer has no token
/** @type {ReturnType<typeof setTimeout> | undefined} */
let jobs_timer;
let last_status_time = 0; // of the last status event, in ms; 0: none so far
let problem = "";
/** @type {{link: import("./stream.js").ConnectionState, why: string}} */
let connection = {link: "connecting", why: ""};

const EVENTS = /** @type {Record<string, (data: any) => void>} */ ({
  hello(hello) {
    server.hello = hello;
    set_text(element("version"), `Berth ${printable(hello.version)}`);
    // A server that was restarted may have another token, and then sends no jobs.
    jobs_timer = setTimeout(() => show_job_list(null), JOBS_TIMEOUT_MS);
    draw();
    load_history();
  },
  samples(samples) {
    set_clock(samples.until);
    set_samples(samples);
    draw_plots();
  },
  sample(sample) {
    set_clock(sample.time);
    add_sample(sample);
    draw_plots();
  },
  status(status) {
    announce_state_changes(status.hosts);
    notify_changes(hosts, status.hosts);
    hosts = status.hosts;
    last_status_time = now();
    problem = "";
    draw();
  },
  jobs(list) {
    show_job_list(list);
  },
  problem({text}) {
    problem = printable(text, 500);
    draw_connection();
  },
  history() {
    notify_ends();
    // All viewers get this event at once. A random delay spreads their requests.
    clearTimeout(history_timer);
    history_timer = setTimeout(load_history, 1000 * Math.random());
  },
});

const JOBS_TIMEOUT_MS = 10_000;

/** @param {import("./model.js").JobList | null} list */
function show_job_list(list) {
  clearTimeout(jobs_timer);
  jobs = list;
  draw_jobs();
}

function draw_jobs() {
  show_jobs(jobs && filter_jobs(jobs.jobs), {total: jobs?.jobs_length ?? 0, filtered: has_job_filter()});
}

function draw() {
  draw_jobs();
  add_users(hosts.flatMap((host) => [...host.gpus.flatMap((gpu) => gpu.leases), ...host.queue].map((one) => one.user)));
  const shown = filter_hosts(hosts);
  show_hosts(shown);
  show_queues(shown);
  show_idle(shown);
  show_history_problem(try_to_draw("timeline", () => update_future(hosts)));
  set_attribute(element("view"), "data-compact", is_compact());
  draw_state_counts();
  draw_connection();
  set_visible(element("unlock"), server.hello?.changes === true && !stored_token());
}

function draw_state_counts() {
  const gpus = hosts.flatMap((host) => host.gpus);
  const waiting = hosts.reduce((sum, host) => sum + (host.queue_length ?? host.queue.length), 0);
  /** @type {{kind: State | "waiting", count: number}[]} */
  const counts = STATES.map((kind) => ({kind, count: gpus.filter((gpu) => gpu.state === kind).length}));
  const shown = counts.filter(({kind, count}) => count > 0 || (kind === "free" && gpus.length > 0));
  if (gpus.length) shown.push({kind: "waiting", count: waiting});
  update_children(element("tallies"), shown, ({kind}) => kind, state_count_view);
  set_text(element("jump-queue"), `Queue (${waiting})`);
  set_text(element("where"), hosts.length > 1 ? plural(hosts.length, "host") : printable(hosts[0]?.host));
  const free = gpus.filter((gpu) => gpu.state === "free").length;
  document.title = gpus.length ? `${free} of ${gpus.length} free · Berth` : "Berth";
}

/** @returns {import("./dom.js").View<{kind: State | "waiting", count: number}>} */
function state_count_view() {
  const number = h("strong");
  const word = h("span");
  const node = h("li");
  return {
    node,
    update({kind, count}) {
      if (!node.firstChild) {
        const control = kind === "waiting" ? h("a", {href: "#queue"}, number, word) :
          h("button", {type: "button", "data-state": kind}, state_icon(kind), number, word);
        if (kind !== "waiting") control.addEventListener("click", () => toggle_state(kind));
        node.append(control);
        set_text(word, kind);
      }
      set_text(number, `${count}`);
      if (kind !== "waiting") set_attribute(/** @type {Element} */ (node.firstElementChild), "aria-pressed", `${is_state_chosen(kind)}`);
    },
  };
}

// Compact cards, if the viewer wants them; by default if there are many GPUs, or the window is low.
const compact = /** @type {HTMLInputElement} */ (element("compact"));

function is_compact() {
  const stored = localStorage.getItem("berth-compact");
  const gpus = hosts.reduce((sum, host) => sum + host.gpus.length, 0);
  compact.checked = stored === null ? gpus > 8 || (gpus > 4 && innerHeight < 840 && innerWidth > 1000) : stored === "yes";
  return compact.checked;
}
compact.addEventListener("change", () => {
  localStorage.setItem("berth-compact", compact.checked ? "yes" : "no");
  draw();
});

function draw_connection() {
  const {link, why} = connection;
  const lost = link === "lost";
  set_text(element("link"), problem && !lost ? "problem" : link === "token" ? "token needed" : link);
  set_attribute(element("link"), "data-link", problem && !lost ? "problem" : link);
  const since = last_status_time ? ` The data shown is from ${moment(last_status_time)}.` : "";
  set_text(element("notice-text"), lost ? `Connection lost${why ? `: ${why}` : ""}. Trying again …${since}` :
    problem ? `${problem}${since}` : "");
  set_visible(element("notice"), lost || problem !== "");
  set_visible(element("retry"), lost);
  set_attribute(element("view"), "data-old", lost || problem !== "");
}

/** @param {import("./stream.js").ConnectionState} link @param {string} why */
function on_connection_state(link, why) {
  const before = connection.link;
  connection = {link, why};
  if (link === "lost" && before === "live") announce("Connection lost");
  if (link === "live" && before === "lost") announce("Connected again");
  if (link === "token") handle_missing_token(why);
  else if (link === "live") {
    set_visible(element("token"), false);
    set_visible(element("view"), true);
  }
  draw_connection();
}

/** @param {string} text for users of a screen reader */
function announce(text) {
  set_text(element("announcer"), text);
}

/**
 * Announces only changes that matter to a user who waits for a GPU, or to an administrator.
 * @param {Host[]} next
 */
function announce_state_changes(next) {
  const before = new Map(hosts.flatMap((host) => host.gpus.map((gpu) => [gpu_key(host.host, gpu), gpu.state])));
  const none_free = before.size > 0 && ![...before.values()].includes("free");
  const changes = next.flatMap((host) => host.gpus.filter((gpu) => {
    const old = before.get(gpu_key(host.host, gpu));
    if (old === undefined || old === gpu.state) return false;
    return ["stranger", "drained", "lost"].includes(gpu.state) || (gpu.state === "free" && none_free);
  }).map((gpu) => `GPU ${gpu.index} is ${gpu.state}`));
  if (changes.length) announce(changes.slice(0, 4).join(", "));
}

// The history is requested when leases have ended, when the user chooses another period, and every minute, because
// running leases grow.

/** @type {ReturnType<typeof setTimeout> | undefined} */
let history_timer;
let last_history_request = 0;

/** @type {import("./model.js").Report | null} */
let last_report = null;

function draw_usage() {
  if (last_report) show_usage(last_report);
}

/**
 * Draws a part of the page, so that an error there does not keep the other parts from being drawn.
 * @param {string} part
 * @param {() => void} draw_part
 * @returns {string | null} why it cannot be drawn
 */
function try_to_draw(part, draw_part) {
  try {
    draw_part();
    return null;
  } catch (error) {
    console.error(error);
    return `The ${part} cannot be drawn: ${error instanceof Error ? error.message : error}`;
  }
}

/** @type {string | null} */
let history_request_problem = null;

/** @param {string | null} drawing_problem */
function show_history_problem(drawing_problem) {
  const text = history_request_problem ?? drawing_problem;
  set_text(element("history-error"), text ?? "");
  set_visible(element("history-error"), text !== null);
}

async function load_history() {
  clearTimeout(history_timer);
  history_timer = setTimeout(load_history, 60_000);
  if (document.hidden || connection.link !== "live") return;
  const request = ++last_history_request;
  const period = document.querySelector("input[name=period]:checked")?.getAttribute("value") ?? "24h";
  const [timeline, report] = await Promise.all([call(`timeline?since=${period}`), call(`report?since=${period}`)]);
  if (request !== last_history_request) return;
  if (report.data) add_users((last_report = report.data).users.map((/** @type {{user: string}} */ one) => one.user));
  history_request_problem = timeline.problem ?? report.problem;
  show_history_problem(try_to_draw("timeline", () => timeline.data && show_timeline(timeline.data, hosts, period)));
  draw_usage();
}
for (const choice of document.querySelectorAll("input[name=period]")) choice.addEventListener("change", load_history);

// The token comes from the address of the page, or the user types it.

let tried_token = "";

/** @param {string} why */
async function handle_missing_token(why) {
  const given = stored_token();
  if (given && given !== tried_token) {
    tried_token = given;
    if ((await check_token(given)) === null) return event_stream.open();
    store_token(null);
  }
  show_token_form(why, false);
}

/** @param {string} why @param {boolean} optional */
function show_token_form(why, optional) {
  set_text(element("token-why"), why);
  set_visible(element("token"), true);
  set_visible(element("view"), optional);
  element("token-value").focus();
}

element("token-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = /** @type {HTMLInputElement} */ (element("token-value"));
  const refused = await check_token(field.value.trim());
  set_text(element("token-error"), refused ?? "");
  if (refused !== null) return field.select();
  field.value = "";
  set_visible(element("token"), false);
  event_stream.open();
});
element("unlock").addEventListener("click", () =>
  show_token_form("To see your jobs, and to end, cancel, release and drain, enter the token that berth serve printed.", true));

store_token_from_url();
const event_stream = stream((name, data) => EVENTS[name]?.(data), on_connection_state, is_notifying);
watch_filter(() => {
  draw();
  show_history_problem(try_to_draw("timeline", () => draw_timeline(hosts)));
  draw_usage();
});
watch_jobs(draw_jobs);
watch_endings(draw);
element("retry").addEventListener("click", () => event_stream.open());
setInterval(() => document.hidden || hosts.length === 0 || draw(), 5000);
