// @ts-check
// The page of `berth serve`: what the stream says goes to the parts that show it.
import {call, keep_token, take_token_from_address, token, use_token} from "./api.js";
import {draw_plots, shape, show_hosts} from "./cards.js";
import {attribute, each, h, part, say, show} from "./dom.js";
import {moment, now, plural, set_clock, visible} from "./format.js";
import {gpu_key, server, STATES} from "./model.js";
import {show_idle, show_queues} from "./queue.js";
import {add_sample, set_samples} from "./samples.js";
import {stream} from "./stream.js";
import {show_timeline} from "./timeline.js";
import {show_usage} from "./usage.js";

/** @typedef {import("./model.js").Host} Host */
/** @typedef {import("./model.js").State} State */

/** @type {Host[]} */
let hosts = [];
let seen = 0; // when the last status came
let problem = "";
/** @type {{link: import("./stream.js").Link, why: string}} */
let connection = {link: "connecting", why: ""};

const EVENTS = /** @type {Record<string, (data: any) => void>} */ ({
  hello(hello) {
    server.hello = hello;
    say(part("version"), `Berth ${visible(hello.version)}`);
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
    announce_changes(status.hosts);
    hosts = status.hosts;
    seen = now();
    problem = "";
    draw();
  },
  problem({text}) {
    problem = visible(text, 500);
    draw_connection();
  },
  history() {
    // All viewers hear it at once; not all need to ask at once.
    clearTimeout(soon);
    soon = setTimeout(load_history, 1000 * Math.random());
  },
});

function draw() {
  show_hosts(hosts);
  show_queues(hosts);
  show_idle(hosts);
  draw_tallies();
  draw_connection();
  show(part("unlock"), server.hello?.changes === true && !token());
}

function draw_tallies() {
  const gpus = hosts.flatMap((host) => host.gpus);
  const waiting = hosts.reduce((sum, host) => sum + (host.queue_length ?? host.queue.length), 0);
  /** @type {{kind: State | "waiting", count: number}[]} */
  const tallies = STATES.map((kind) => ({kind, count: gpus.filter((gpu) => gpu.state === kind).length}));
  const shown = tallies.filter(({kind, count}) => count > 0 || (kind === "free" && gpus.length > 0));
  if (gpus.length) shown.push({kind: "waiting", count: waiting});
  each(part("tallies"), shown, ({kind}) => kind, tally_view);
  say(part("where"), hosts.length > 1 ? plural(hosts.length, "host") : visible(hosts[0]?.host));
  const free = gpus.filter((gpu) => gpu.state === "free").length;
  document.title = gpus.length ? `${free} of ${gpus.length} free · Berth` : "Berth";
}

/** @returns {import("./dom.js").View<{kind: State | "waiting", count: number}>} */
function tally_view() {
  const number = h("strong");
  const word = h("span");
  const node = h("li", {}, number, word);
  return {
    node,
    update({kind, count}) {
      if (!node.dataset.state) {
        node.dataset.state = kind;
        if (kind !== "waiting") node.prepend(shape(kind));
        say(word, kind);
      }
      say(number, `${count}`);
    },
  };
}

function draw_connection() {
  const {link, why} = connection;
  const lost = link === "lost";
  say(part("link"), problem && !lost ? "problem" : link === "token" ? "token needed" : link);
  attribute(part("link"), "data-link", problem && !lost ? "problem" : link);
  const since = seen ? ` What you see is from ${moment(seen)}.` : "";
  say(part("notice-text"), lost ? `Connection lost${why ? `: ${why}` : ""}. Trying again …${since}` :
    problem ? `${problem}${since}` : "");
  show(part("notice"), lost || problem !== "");
  show(part("retry"), lost);
  attribute(part("view"), "data-old", lost || problem !== "");
}

/** @param {import("./stream.js").Link} link @param {string} why */
function on_link(link, why) {
  const before = connection.link;
  connection = {link, why};
  if (link === "lost" && before === "live") announce("Connection lost");
  if (link === "live" && before === "lost") announce("Connected again");
  if (link === "token") need_token(why);
  else if (link === "live") {
    show(part("token"), false);
    show(part("view"), true);
  }
  draw_connection();
}

/** @param {string} text to who listens instead of looking */
function announce(text) {
  say(part("announcer"), text);
}

/**
 * Tells what matters to somebody who waits for a GPU or looks after them, and nothing else.
 * @param {Host[]} next
 */
function announce_changes(next) {
  const before = new Map(hosts.flatMap((host) => host.gpus.map((gpu) => [gpu_key(host.host, gpu), gpu.state])));
  const none_free = before.size > 0 && ![...before.values()].includes("free");
  const news = next.flatMap((host) => host.gpus.filter((gpu) => {
    const old = before.get(gpu_key(host.host, gpu));
    if (old === undefined || old === gpu.state) return false;
    return ["stranger", "drained", "lost"].includes(gpu.state) || (gpu.state === "free" && none_free);
  }).map((gpu) => `GPU ${gpu.index} is ${gpu.state}`));
  if (news.length) announce(news.slice(0, 4).join(", "));
}

// The history: asked for when it changed, now and then since running jobs go on, and when another time is chosen.

/** @type {ReturnType<typeof setTimeout> | undefined} */
let soon;
let asked = 0;

async function load_history() {
  clearTimeout(soon);
  soon = setTimeout(load_history, 60_000);
  if (document.hidden || connection.link !== "live") return;
  const turn = ++asked;
  const period = document.querySelector("input[name=period]:checked")?.getAttribute("value") ?? "24h";
  const [timeline, report] = await Promise.all([call(`timeline?since=${period}`), call(`report?since=${period}`)]);
  if (turn !== asked) return;
  if (timeline.data) show_timeline(timeline.data, hosts);
  if (report.data) show_usage(report.data);
  const failed = timeline.problem ?? report.problem;
  say(part("history-error"), failed ?? "");
  show(part("history-error"), failed !== null);
}
for (const choice of document.querySelectorAll("input[name=period]")) choice.addEventListener("change", load_history);

// The token: from the address, or from whoever sits here.

let tried = "";

/** @param {string} why */
async function need_token(why) {
  const given = token();
  if (given && given !== tried) {
    tried = given;
    if ((await use_token(given)) === null) return live.open();
    keep_token(null);
  }
  ask_token(why, false);
}

/** @param {string} why @param {boolean} optional */
function ask_token(why, optional) {
  say(part("token-why"), why);
  show(part("token"), true);
  show(part("view"), optional);
  part("token-value").focus();
}

part("token-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = /** @type {HTMLInputElement} */ (part("token-value"));
  const refused = await use_token(field.value.trim());
  say(part("token-error"), refused ?? "");
  if (refused !== null) return field.select();
  field.value = "";
  show(part("token"), false);
  live.open();
});
part("unlock").addEventListener("click", () =>
  ask_token("To cancel, release and drain, enter the token that berth serve has printed.", true));

take_token_from_address();
const live = stream((name, data) => EVENTS[name]?.(data), on_link);
part("retry").addEventListener("click", () => live.open());
setInterval(() => document.hidden || hosts.length === 0 || draw(), 5000);
