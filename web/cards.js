// @ts-check
// The cards of the GPUs, grouped by host if there are several. A card is created once and updated in place.
import {element, h, set_attribute, set_text, set_visible, svg, update_children} from "./dom.js";
import {me} from "./filter.js";
import {age, duration, estimate, measure, memory, moment, plural, printable, UNKNOWN} from "./format.js";
import {gpu_key, STATE_ICONS} from "./model.js";
import {user_classes} from "./user_colours.js";
import {plot} from "./plot.js";
import {gpu_samples} from "./samples.js";
import {can_change, confirm_change, describe_job_end, is_ending} from "./changes.js";

/** @typedef {import("./model.js").Host} Host */
/** @typedef {import("./model.js").Gpu} Gpu */
/** @typedef {import("./model.js").Lease} Lease */
/** @typedef {import("./model.js").State} State */

/** @param {Host[]} hosts */
export function show_hosts(hosts) {
  const several = hosts.length > 1;
  update_children(element("hosts"), hosts, (host) => host.host, () => host_view(() => several));
}

/** Redraws the plots of all cards; called after each new sample. */
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
  const next_free = h("p", {class: "hint next-free"});
  const problem = h("p", {class: "problem"});
  const cards = h("div", {class: "cards"});
  const node = h("div", {class: "host"}, name, next_free, note, problem, cards);
  return {
    node,
    update(host) {
      set_text(name, printable(host.host));
      set_attribute(name, "class", several() ? null : "hidden");
      const old = host.age_s !== null && host.age_s > 30;
      set_text(note, old ? `As of ${duration(host.age_s)} ago` : "");
      set_visible(note, old);
      const text = host.problem ?? (host.gpus.length ? "" : host.filtered ? "No GPU matches the filter." :
        "No GPU found on this host. In a terminal, berth doctor shows why and what to do.");
      const soon = describe_next_free(host);
      set_text(next_free, soon);
      set_visible(next_free, soon !== "");
      set_text(problem, printable(text));
      set_visible(problem, text !== "");
      update_children(cards, host.gpus.map((gpu) => ({gpu, host})), ({gpu}) => gpu_key(host.host, gpu), card_view);
    },
  };
}

/** @param {Host} host @returns {string} when the next GPU becomes free, if none is free and this is known */
function describe_next_free({next_free}) {
  if (!next_free) return "";
  const gpus = `${next_free.gpus.length === 1 ? "GPU" : "GPUs"} ${next_free.gpus.join(", ")}`;
  const left = -age(next_free.at);
  return left <= 0 ? `Next free: ${gpus}, whose ${next_free.source} end has passed` :
    `Next free: ${gpus} in ${estimate(left)} (${next_free.source})`;
}

/** @param {State} state */
export function state_icon(state) {
  return svg("svg", {viewBox: "0 0 16 16", class: "shape", "aria-hidden": "true"},
      svg("path", {d: STATE_ICONS[state], "fill-rule": "evenodd"}));
}

/** @returns {import("./dom.js").View<{gpu: Gpu, host: Host}>} */
function card_view() {
  const title = h("h4");
  const badge = h("span", {class: "badge"});
  const model = h("p", {class: "model"});
  const reason = h("p", {class: "reason"});
  const leases = h("ul", {class: "plain leases"});
  const bar = memory_bar();
  const utilization_plot = plot("Utilization", "load", (value) => `${Math.round(value)} %`);
  const memory_plot = plot("Memory", "room", (value) => `${Math.round(value)} %`);
  const facts = h("p", {class: "facts"});
  const details = details_view();
  const drain = h("button", {type: "button", class: "quiet"});
  const node = h("article", {class: "card"},
      h("div", {class: "head"}, title, badge), model, leases, reason, bar.node,
      h("div", {class: "plots"}, utilization_plot.node, memory_plot.node), h("div", {class: "foot"}, details.node, drain, facts));
  /** @type {{gpu: Gpu, host: Host}} */
  let last;
  /** @type {State | null} */
  let state = null;

  const draw = () => {
    const samples = gpu_samples(gpu_key(last.host.host, last.gpu));
    utilization_plot.draw(samples.utilization, 100);
    const total = last.gpu.memory_total_mib;
    memory_plot.draw(samples.memory.map((mib) => percent_of(mib, total)), 100);
  };
  drain.addEventListener("click", () => confirm_change(last.gpu.state === "drained" ? "undrain" : "drain",
      {id: last.gpu.uuid ?? "", what: `GPU ${last.gpu.index}`}));

  return {
    node,
    update(item) {
      const first = last === undefined;
      last = item;
      const {gpu, host} = item;
      if (gpu.state !== state) {
        state = gpu.state;
        badge.replaceChildren(state_icon(STATE_ICONS[state] ? state : "unknown"), state);
        set_attribute(node, "data-state", state);
      }
      set_text(title, `GPU ${gpu.index}`);
      set_attribute(title, "aria-label", `GPU ${gpu.index}, ${gpu.state}`);
      // Without the vendor, so that the end of the name, such as "MIG 3g.40gb", is not cut.
      set_text(model, printable(gpu.name).replace(/^NVIDIA /, "") || UNKNOWN);
      set_attribute(model, "title", printable(gpu.name));
      update_children(leases, gpu.leases.map((lease) => ({lease, host})), ({lease}) => lease.id, lease_view);
      set_visible(leases, gpu.leases.length > 0);
      set_text(reason, printable(gpu.reason, 300));
      set_visible(reason, gpu.reason !== "");
      bar.update(gpu);
      utilization_plot.set_value(gpu.utilization_pct);
      memory_plot.set_value(percent_of(gpu.memory_used_mib, gpu.memory_total_mib));
      const known = /** @type {[number | null, string][]} */ ([[gpu.temperature_c, "°C"], [gpu.power_w, "W"]]).filter(([value]) => value !== null);
      set_text(facts, known.map(([value, unit]) => measure(value, unit)).join(" · "));
      set_visible(facts, known.length > 0);
      set_text(drain, gpu.state === "drained" ? "Undrain" : "Drain");
      set_attribute(drain, "aria-label", `${drain.textContent} GPU ${gpu.index}`);
      set_visible(drain, can_change(host) && gpu.uuid !== null);
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
  const owner = user_mark();
  const what = h("bdi", {class: "what"});
  const since = h("span", {class: "since"});
  const end = h("span", {class: "end"});
  const progress = h("div", {"aria-hidden": "true"});
  const progress_track = h("div", {class: "progress"}, progress);
  const reserved = h("span", {class: "since"});
  const idle = h("span", {class: "idle-mark"});
  const release = h("button", {type: "button", class: "quiet"}, "Release");
  const stop = h("button", {type: "button", class: "quiet"});
  const node = h("li", {}, h("div", {class: "line"}, ...owner.nodes, since), h("div", {class: "line job"}, what, reserved),
      progress_track, h("div", {class: "line lease-foot"}, end, idle, release, stop));
  /** @type {Lease} */
  let last;
  release.addEventListener("click", () => confirm_change("release", {id: last.id, what: `the lease of ${printable(last.user)}`}));
  stop.addEventListener("click", () => confirm_change("end", {id: last.id, what: `job ${last.id}`, detail: describe_job_end(last,
      `It is of ${printable(last.user)}, and has been running for ${duration(last.since === null ? null : age(last.since))}.`)}));
  return {
    node,
    update({lease, host}) {
      last = lease;
      owner.update(lease.user);
      set_text(since, lease.since === null ? "" : duration(age(lease.since)));
      set_text(reserved, lease.memory_mib === null ? "" : memory(lease.memory_mib));
      set_visible(reserved, lease.memory_mib !== null);
      set_attribute(reserved, "title", "reserved memory");
      set_attribute(since, "title", lease.since && `since ${moment(Date.parse(lease.since))}`);
      set_text(what, lease.since === null ? `Its record cannot be read: ${printable(lease.problem, 300)}` : job_title(lease));
      set_attribute(what, "title", what.textContent);
      set_text(end, describe_end(lease));
      set_attribute(end, "title", lease.ends && `${lease.ends_source} end: ${moment(Date.parse(lease.ends))}`);
      set_visible(progress_track, lease.ends !== null);
      set_attribute(node, "data-end", lease.overdue ? "overdue" : lease.ends_source ?? "unknown");
      if (lease.ends !== null && lease.since !== null) {
        const total = age(lease.since) - age(lease.ends);
        set_width(progress, `${Math.min(100, (100 * age(lease.since)) / Math.max(1, total)).toFixed(1)}%`);
      }
      set_text(idle, lease.idle_s === null ? "" : `idle for ${duration(lease.idle_s)}`);
      set_visible(idle, lease.idle_s !== null);
      set_attribute(node, "data-idle", lease.idle_s !== null);
      set_attribute(release, "aria-label", `Release the lease of ${printable(lease.user)}`);
      set_visible(release, lease.holder === "shell" && can_change(host, lease.user));
      set_text(stop, is_ending(lease.id) ? "Ending …" : "End");
      set_attribute(stop, "aria-label", `${stop.textContent} job ${lease.id} of ${printable(lease.user)}`);
      stop.disabled = is_ending(lease.id);
      set_visible(stop, lease.holder === "job" && can_change(host, lease.user));
    },
  };
}

/** A user's colour and name, and whether the user is the viewer. */
export function user_mark() {
  const swatch = h("span", {"aria-hidden": "true"});
  const name = h("bdi", {class: "user"});
  const you = h("span", {class: "you"}, "you");
  return {
    nodes: [swatch, name, you],
    /** @param {string} user */
    update(user) {
      set_attribute(swatch, "class", `swatch ${user_classes(user)}`);
      set_text(name, printable(user));
      set_visible(you, user === me());
    },
  };
}

/**
 * When a lease is expected to end.
 * @param {Lease} lease
 */
export function describe_end({ends, ends_source, overdue}) {
  if (ends === null) return "end unknown";
  const left = -age(ends);
  if (overdue || left < 0) return `overdue by ${duration(-left)}`;
  return ends_source === "announced" ? `until ${moment(Date.parse(ends))}, ${duration(left)} left` : `estimate: ${duration(left)} left`;
}

/**
 * A job in one line: its label and its command, as far as they are known.
 * @param {{label: string|null, command: string|null}} job
 */
export function job_title(job) {
  return [job.label, job.command].filter(Boolean).map((text) => printable(text, 300)).join(" · ");
}

function memory_bar() {
  const parts = ["reserved", "used", "strange"].map((kind) => h("div", {class: kind}));
  const keys = ["used", "reserved", "strange"].map((kind) => h("span", {class: `key ${kind}`}));
  const track = h("div", {class: "track", role: "img"}, ...parts);
  return {
    node: h("div", {class: "memory"}, h("p", {class: "words"}, ...keys), track),
    /** @param {Gpu} gpu */
    update(gpu) {
      const {reserved, leased, stranger, whole} = memory_parts(gpu);
      const total = gpu.memory_total_mib;
      const share = (/** @type {number | null} */ mib) => `${Math.min(100, percent_of(mib, total) ?? 0)}%`;
      [whole ? "100%" : share(reserved), share(leased), share(stranger)].forEach((value, i) => set_width(parts[i], value));
      parts[2].style.left = share(leased);
      const words = [stranger && !leased ? "" : `${format_of_total(gpu.memory_used_mib === null ? null : leased, total)}`,
        whole ? "all reserved" : reserved ? `${memory(reserved)} reserved` : "",
        stranger ? `${leased ? memory(stranger) : format_of_total(stranger, total)} used by strangers` : ""];
      words.forEach((text, i) => {
        set_text(keys[i], text);
        set_visible(keys[i], text !== "");
      });
      set_attribute(track, "aria-label", `Memory: ${words.filter(Boolean).join(", ")}`);
    },
  };
}

/**
 * The memory of a GPU in MiB: reserved by leases, used by leases, and used by strangers.
 * @param {Gpu} gpu
 */
function memory_parts(gpu) {
  const strangers = gpu.reason !== "" && ["stranger", "shared", "leased"].includes(gpu.state);
  const listed = gpu.processes.reduce((sum, process) => sum + (process.lease ? 0 : process.memory_mib ?? 0), 0);
  const used = gpu.memory_used_mib ?? 0;
  // The driver may not list the stranger's process. Then only the sum of all used memory is known.
  const stranger = !strangers ? 0 : gpu.state === "stranger" ? used : Math.min(used, listed);
  return {stranger, leased: used - stranger, whole: gpu.leases.some((lease) => lease.exclusive),
    reserved: gpu.leases.reduce((sum, lease) => sum + (lease.memory_mib ?? 0), 0)};
}

/**
 * "3 of 24 GiB": with only one unit if both have the same.
 * @param {number | null} mib
 * @param {number | null} total
 */
function format_of_total(mib, total) {
  const [some, all] = [memory(mib), memory(total)];
  if (mib === null || total === null) return some;
  const unit = all.slice(all.indexOf(" "));
  return `${mib === 0 ? 0 : some.endsWith(unit) ? some.slice(0, -unit.length) : some} of ${all}`;
}

/** @param {number | null} mib @param {number | null} total */
function percent_of(mib, total) {
  return mib === null || !total ? null : (100 * mib) / total;
}

/** @param {HTMLElement} node @param {string} value */
function set_width(node, value) {
  if (node.style.width !== value) node.style.width = value;
}

function details_view() {
  const rows = h("tbody");
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...["Process", "User", "Memory", "Lease"].map(
      (text) => h("th", {scope: "col"}, text)))), rows);
  const no_processes = h("p", {class: "hint"}, "No process uses this GPU.");
  const commands = h("div");
  const facts = h("p", {class: "hint uuid"});
  const summary = h("summary", {}, "Details");
  // Above the cards below it, so that no card changes its size. Only one is open at a time.
  const node = h("details", {name: "card-details"}, summary, h("div", {class: "floating"}, commands, table, no_processes, facts));
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !node.open) return;
    node.open = false;
    summary.focus();
  });
  addEventListener("pointerdown", (event) => {
    if (node.open && event.target instanceof Node && !node.contains(event.target)) node.open = false;
  });
  /** @type {[Gpu, Host] | null} */
  let last = null;
  const update_if_open = () => {
    if (!node.open || !last) return;
    const [gpu, host] = last;
    update_children(commands, gpu.leases, (lease) => lease.id, command_view);
    update_children(rows, gpu.processes, (process) => `${process.pid}`, process_view);
    set_visible(table, gpu.processes.length > 0);
    set_visible(no_processes, gpu.processes.length === 0);
    set_text(facts, [gpu.uuid ?? "UUID unknown", host.driver && `driver ${printable(host.driver)}`,
      gpu.performance_state !== null && `performance state ${gpu.performance_state}`].filter(Boolean).join(" · "));
  };
  node.addEventListener("toggle", () => {
    update_if_open();
    const card = node.closest(".card");
    const panel = node.lastElementChild;
    if (!node.open || !card || !panel) return;
    const right_edge = card.getBoundingClientRect().left + panel.getBoundingClientRect().width;
    panel.classList.toggle("leftwards", right_edge > document.documentElement.clientWidth - 8);
  });
  return {
    node,
    /** @param {Gpu} gpu @param {Host} host */
    update(gpu, host) {
      last = [gpu, host];
      set_attribute(summary, "aria-label", `Details of GPU ${gpu.index}, ${plural(gpu.processes.length, "process", "processes")}`);
      update_if_open();
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
      const about = `Lease ${lease.id} of ${printable(lease.user)}`;
      set_text(head, lease.since === null ? about :
        `${about}, process ${lease.pid}, since ${moment(Date.parse(lease.since))}, ${describe_end(lease)}`);
      set_text(text, lease.since === null ? `Its record cannot be read: ${printable(lease.problem, 300)}` :
        printable(lease.command) || "The command is not shown to other users.");
    },
  };
}

/** @returns {import("./dom.js").View<import("./model.js").Process>} */
function process_view() {
  const cells = Array.from({length: 4}, () => h("td"));
  return {
    node: h("tr", {}, ...cells),
    update(process) {
      set_text(cells[0], `${printable(process.name) || UNKNOWN} (${process.pid})`);
      set_text(cells[1], printable(process.user) || UNKNOWN);
      set_text(cells[2], memory(process.memory_mib));
      set_text(cells[3], process.lease ?? "none");
    },
  };
}
