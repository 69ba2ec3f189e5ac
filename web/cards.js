// @ts-check
// The GPUs: a card each, by host where there are several. A card is made once and changed in place.
import {attribute, each, h, part, say, show, svg} from "./dom.js";
import {age, duration, measure, memory, moment, plural, UNKNOWN, visible} from "./format.js";
import {gpu_key, SHAPES} from "./model.js";
import {colours_of} from "./people.js";
import {plot} from "./plot.js";
import {samples_of} from "./samples.js";
import {ask, may_change} from "./changes.js";

/** @typedef {import("./model.js").Host} Host */
/** @typedef {import("./model.js").Gpu} Gpu */
/** @typedef {import("./model.js").Lease} Lease */
/** @typedef {import("./model.js").State} State */

/** @param {Host[]} hosts */
export function show_hosts(hosts) {
  const several = hosts.length > 1;
  each(part("hosts"), hosts, (host) => host.host, () => host_view(() => several));
}

/** Draws the plots of every card again: there is a new sample. */
export function draw_plots() {
  for (const [card, draw] of plots) {
    if (card.isConnected) draw();
    else plots.delete(card);
  }
}

/** @type {Map<HTMLElement, () => void>} */
const plots = new Map();

/** @param {() => boolean} several @returns {import("./dom.js").View<Host>} */
function host_view(several) {
  const name = h("h3");
  const note = h("p", {class: "hint"});
  const problem = h("p", {class: "problem"});
  const cards = h("div", {class: "cards"});
  const node = h("div", {class: "host"}, name, note, problem, cards);
  return {
    node,
    update(host) {
      say(name, visible(host.host));
      attribute(name, "class", several() ? null : "hidden");
      const old = host.age_s !== null && host.age_s > 30;
      say(note, old ? `As of ${duration(host.age_s)} ago` : "");
      show(note, old);
      const text = host.problem ?? (host.gpus.length ? "" :
        "No GPU was found here. In a terminal, berth doctor says why and what to do.");
      say(problem, visible(text));
      show(problem, text !== "");
      each(cards, host.gpus.map((gpu) => ({gpu, host})), ({gpu}) => gpu_key(host.host, gpu), card_view);
    },
  };
}

/** @param {State} state */
export function shape(state) {
  return svg("svg", {viewBox: "0 0 16 16", class: "shape", "aria-hidden": "true"},
      svg("path", {d: SHAPES[state], "fill-rule": "evenodd"}));
}

/** @returns {import("./dom.js").View<{gpu: Gpu, host: Host}>} */
function card_view() {
  const title = h("h4");
  const badge = h("span", {class: "badge"});
  const model = h("p", {class: "model"});
  const reason = h("p", {class: "reason"});
  const leases = h("ul", {class: "plain leases"});
  const bar = memory_bar();
  const load = plot("Utilization", "load", (value) => `${Math.round(value)} %`);
  const room = plot("Memory", "room", (value) => `${Math.round(value)} %`);
  const facts = h("p", {class: "facts"});
  const details = details_view();
  const drain = h("button", {type: "button", class: "quiet"});
  const node = h("article", {class: "card"},
      h("div", {class: "head"}, title, badge), model, leases, reason, bar.node,
      h("div", {class: "plots"}, load.node, room.node), h("div", {class: "foot"}, details.node, drain, facts));
  /** @type {{gpu: Gpu, host: Host}} */
  let last;
  /** @type {State | null} */
  let state = null;

  const draw = () => {
    const samples = samples_of(gpu_key(last.host.host, last.gpu));
    load.draw(samples.utilization, 100);
    const total = last.gpu.memory_total_mib;
    room.draw(samples.memory.map((mib) => part_of(mib, total)), 100);
  };
  drain.addEventListener("click", () => ask(last.gpu.state === "drained" ? "undrain" : "drain",
      {id: last.gpu.uuid ?? "", what: `GPU ${last.gpu.index}`}));

  return {
    node,
    update(item) {
      const first = last === undefined;
      last = item;
      const {gpu, host} = item;
      if (gpu.state !== state) {
        state = gpu.state;
        badge.replaceChildren(shape(SHAPES[state] ? state : "unknown"), state);
        attribute(node, "data-state", state);
      }
      say(title, `GPU ${gpu.index}`);
      attribute(title, "aria-label", `GPU ${gpu.index}, ${gpu.state}`);
      say(model, visible(gpu.name) || UNKNOWN);
      each(leases, gpu.leases.map((lease) => ({lease, host})), ({lease}) => lease.id, lease_view);
      show(leases, gpu.leases.length > 0);
      say(reason, visible(gpu.reason, 300));
      show(reason, gpu.reason !== "");
      bar.update(gpu);
      load.tell(gpu.utilization_pct);
      room.tell(part_of(gpu.memory_used_mib, gpu.memory_total_mib));
      say(facts, `${measure(gpu.temperature_c, "°C")} · ${measure(gpu.power_w, "W")}`);
      show(facts, gpu.temperature_c !== null || gpu.power_w !== null);
      say(drain, gpu.state === "drained" ? "Undrain" : "Drain");
      attribute(drain, "aria-label", `${drain.textContent} GPU ${gpu.index}`);
      show(drain, may_change(host) && gpu.uuid !== null);
      details.update(gpu, host);
      if (first) {
        plots.set(node, draw);
        draw();
      }
    },
  };
}

/** @returns {import("./dom.js").View<{lease: Lease, host: Host}>} */
function lease_view() {
  const user = h("bdi", {class: "user"});
  const what = h("bdi", {class: "what"});
  const since = h("span", {class: "since"});
  const idle = h("span", {class: "idle-mark"});
  const release = h("button", {type: "button", class: "quiet"}, "Release");
  const swatch = h("span", {"aria-hidden": "true"});
  const node = h("li", {}, h("div", {class: "line"}, swatch, user, since, idle), what, release);
  /** @type {Lease} */
  let last;
  release.addEventListener("click", () => ask("release", {id: last.id, what: `the lease of ${visible(last.user)}`}));
  return {
    node,
    update({lease, host}) {
      last = lease;
      attribute(swatch, "class", `swatch ${colours_of(lease.user)}`);
      say(user, visible(lease.user));
      say(since, duration(age(lease.since)) + (lease.memory_mib === null ? "" : ` · ${memory(lease.memory_mib)}`));
      attribute(since, "title", `since ${moment(Date.parse(lease.since))}`);
      say(what, what_of(lease));
      say(idle, lease.idle_s === null ? "" : `idle for ${duration(lease.idle_s)}`);
      show(idle, lease.idle_s !== null);
      attribute(node, "data-idle", lease.idle_s !== null);
      attribute(release, "aria-label", `Release the lease of ${visible(lease.user)}`);
      show(release, lease.holder === "shell" && may_change(host, lease.user));
    },
  };
}

/**
 * What a job is, in one line: its label and its command, as far as they are told.
 * @param {{label: string, command: string|null}} job
 */
export function what_of(job) {
  return [job.label, job.command].filter(Boolean).map((text) => visible(text, 300)).join(" · ");
}

function memory_bar() {
  const parts = ["reserved", "used", "strange"].map((kind) => h("div", {class: kind}));
  const keys = ["used", "reserved", "strange"].map((kind) => h("span", {class: `key ${kind}`}));
  const track = h("div", {class: "track", role: "img"}, ...parts);
  return {
    node: h("div", {class: "memory"}, h("p", {class: "words"}, ...keys), track),
    /** @param {Gpu} gpu */
    update(gpu) {
      const {reserved, own, foreign, whole} = split(gpu);
      const total = gpu.memory_total_mib;
      const share = (/** @type {number | null} */ mib) => `${Math.min(100, part_of(mib, total) ?? 0)}%`;
      [whole ? "100%" : share(reserved), share(own), share(foreign)].forEach((value, i) => width(parts[i], value));
      const words = [foreign && !own ? "" : `${of_total(gpu.memory_used_mib === null ? null : own, total)} used`,
        whole ? "all reserved" : reserved ? `${memory(reserved)} reserved` : "",
        foreign ? `${own ? memory(foreign) : of_total(foreign, total)} strangers'` : ""];
      words.forEach((text, i) => {
        say(keys[i], text);
        show(keys[i], text !== "");
      });
      attribute(track, "aria-label", `Memory: ${words.filter(Boolean).join(", ")}`);
    },
  };
}

/**
 * The memory of a GPU, in MiB: what is reserved, what leases use, and what strangers do.
 * @param {Gpu} gpu
 */
function split(gpu) {
  const strangers = gpu.reason !== "" && ["stranger", "shared", "leased"].includes(gpu.state);
  const listed = gpu.processes.reduce((sum, process) => sum + (process.lease ? 0 : process.memory_mib ?? 0), 0);
  const used = gpu.memory_used_mib ?? 0;
  // Of a stranger that no list shows there is only the sum.
  const foreign = !strangers ? 0 : gpu.state === "stranger" ? used : Math.min(used, listed);
  return {foreign, own: used - foreign, whole: gpu.leases.some((lease) => lease.exclusive),
    reserved: gpu.leases.reduce((sum, lease) => sum + (lease.memory_mib ?? 0), 0)};
}

/** @param {number | null} mib @param {number | null} total in words, with the unit once where both have the same */
function of_total(mib, total) {
  const [some, all] = [memory(mib), memory(total)];
  if (mib === null || total === null) return some;
  const unit = all.slice(all.indexOf(" "));
  return `${some.endsWith(unit) ? some.slice(0, -unit.length) : some} of ${all}`;
}

/** @param {number | null} mib @param {number | null} total in percent */
function part_of(mib, total) {
  return mib === null || !total ? null : (100 * mib) / total;
}

/** @param {HTMLElement} node @param {string} value */
function width(node, value) {
  if (node.style.width !== value) node.style.width = value;
}

function details_view() {
  const rows = h("tbody");
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...["Process", "User", "Memory", "Lease"].map(
      (text) => h("th", {scope: "col"}, text)))), rows);
  const nobody = h("p", {class: "hint"}, "No process uses it.");
  const commands = h("div");
  const facts = h("p", {class: "hint uuid"});
  const summary = h("summary", {}, "Details");
  const node = h("details", {}, summary, commands, table, nobody, facts);
  /** @type {[Gpu, Host] | null} */
  let last = null;
  const fill = () => {
    if (!node.open || !last) return;
    const [gpu, host] = last;
    each(commands, gpu.leases, (lease) => lease.id, command_view);
    each(rows, gpu.processes, (process) => `${process.pid}`, process_view);
    show(table, gpu.processes.length > 0);
    show(nobody, gpu.processes.length === 0);
    say(facts, [gpu.uuid ?? "UUID unknown", host.driver && `driver ${visible(host.driver)}`,
      gpu.performance_state !== null && `performance state ${gpu.performance_state}`].filter(Boolean).join(" · "));
  };
  node.addEventListener("toggle", fill);
  return {
    node,
    /** @param {Gpu} gpu @param {Host} host */
    update(gpu, host) {
      last = [gpu, host];
      attribute(summary, "aria-label", `Details of GPU ${gpu.index}, ${plural(gpu.processes.length, "process", "processes")}`);
      fill();
    },
  };
}

/** @returns {import("./dom.js").View<Lease>} */
function command_view() {
  const head = h("p", {class: "hint"});
  const text = h("pre");
  return {
    node: h("div", {}, head, text),
    update(lease) {
      say(head, `Lease ${lease.id} of ${visible(lease.user)}, process ${lease.pid}, since ${moment(Date.parse(lease.since))}`);
      say(text, visible(lease.command) || "Its command is not shown to other users.");
    },
  };
}

/** @returns {import("./dom.js").View<import("./model.js").Process>} */
function process_view() {
  const cells = Array.from({length: 4}, () => h("td"));
  return {
    node: h("tr", {}, ...cells),
    update(process) {
      say(cells[0], `${visible(process.name) || UNKNOWN} (${process.pid})`);
      say(cells[1], visible(process.user) || UNKNOWN);
      say(cells[2], memory(process.memory_mib));
      say(cells[3], process.lease ?? "none");
    },
  };
}
