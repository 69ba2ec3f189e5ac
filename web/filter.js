// @ts-check
// Which GPUs and tickets the page shows: search, user, state, and "only mine". The server does not know which user the
// viewer is, so the viewer chooses their own name.
import {element, h, set_attribute, set_text, set_visible, update_children} from "./dom.js";
import {plural, printable} from "./format.js";
import {server} from "./model.js";

/** @typedef {import("./model.js").Host} Host */
/** @typedef {import("./model.js").Gpu} Gpu */
/** @typedef {import("./model.js").Ticket} Ticket */
/** @typedef {import("./model.js").State} State */

const KEY = "berth-me";
const search = /** @type {HTMLInputElement} */ (element("search"));
const user_choice = /** @type {HTMLSelectElement} */ (element("user"));
const me_choice = /** @type {HTMLSelectElement} */ (element("me"));
const only_mine = /** @type {HTMLInputElement} */ (element("mine"));

/** @type {State | null} */
let shown_state = null;
/** @type {Set<string>} */
const users = new Set();
/** @type {() => void} */
let on_change = () => {};

/** @param {() => void} callback called when the viewer changes the filter */
export function watch_filter(callback) {
  on_change = callback;
}

/** The name of the viewer, as they chose it; by default the user of the server, if that is a person. "" if unknown. */
export function me() {
  const stored = localStorage.getItem(KEY);
  if (stored !== null) return stored;
  const user = server.hello?.user ?? "";
  return is_service(user) ? "" : user;
}

/** Whether the server's user is a service and not a person. @param {string} user */
export function is_service(user) {
  return ["root", "nobody", "berth-serve"].includes(user);
}

/** @param {State} state filters by this state, or by none if it is filtered by it already */
export function toggle_state(state) {
  shown_state = shown_state === state ? null : state;
  on_change();
}

/** @param {State} state */
export function is_state_chosen(state) {
  return shown_state === state;
}

/** Whether the filter selects this user; true without a filter by user. @param {string | null} user */
export function matches_user(user) {
  return (!only_mine.checked || (user !== null && user === me())) && (!user_choice.value || user === user_choice.value);
}

/** @param {(string | number | null)[]} texts */
function matches_search(texts) {
  const text = texts.join(" ").toLowerCase();
  return search.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function has_user_filter() {
  return only_mine.checked || user_choice.value !== "";
}

/** @param {Gpu} gpu @param {Host} host */
function matches_gpu(gpu, host) {
  if (shown_state !== null && gpu.state !== shown_state) return false;
  if (has_user_filter() && ![...gpu.leases, ...gpu.processes].some((one) => matches_user(one.user))) return false;
  return matches_search([`GPU ${gpu.index}`, host.host, gpu.uuid, gpu.name, gpu.state, gpu.reason,
    ...gpu.leases.flatMap((lease) => [lease.id, lease.user, lease.label, lease.command]),
    ...gpu.processes.flatMap((process) => [process.pid, process.user, process.name])]);
}

/** @param {Ticket} ticket @param {Host} host */
function matches_ticket(ticket, host) {
  return matches_user(ticket.user) && matches_search([ticket.ticket, host.host, ticket.user, ticket.label, ticket.command,
    ticket.request]);
}

/** Whether there is a filter that applies to jobs; that by state is one of GPUs. */
export function has_job_filter() {
  return has_user_filter() || search.value.trim() !== "";
}

/** @param {import("./model.js").Job[]} jobs @returns {import("./model.js").Job[]} those that the filter selects */
export function filter_jobs(jobs) {
  return jobs.filter((job) => matches_user(job.user) && matches_search([job.id, job.user, job.label, job.command, job.state, job.kind,
    job.result, ...job.gpus.map((gpu) => `GPU ${gpu}`)]));
}

/**
 * The hosts with only what the filter selects; a host of several without any is left out.
 * @param {Host[]} hosts
 * @returns {Host[]}
 */
export function filter_hosts(hosts) {
  let result = hosts;
  const is_filtered = shown_state !== null || has_job_filter();
  if (is_filtered) {
    result = hosts.map((host) => ({...host, filtered: true, gpus: host.gpus.filter((gpu) => matches_gpu(gpu, host)),
      queue: host.queue.filter((ticket) => matches_ticket(ticket, host))}));
  }
  const count = (/** @type {Host[]} */ list, /** @type {"gpus" | "queue"} */ part) =>
    list.reduce((sum, host) => sum + host[part].length, 0);
  set_text(element("filtered-text"), `${count(result, "gpus")} of ${plural(count(hosts, "gpus"), "GPU")}, ` +
    `${count(result, "queue")} of ${plural(count(hosts, "queue"), "ticket")}`);
  set_visible(element("filtered"), is_filtered);
  return result.filter((host) => hosts.length === 1 || !host.filtered || host.gpus.length + host.queue.length > 0);
}

/**
 * Offers the users that have something now, or had in the timeline.
 * @param {(string | null)[]} names
 */
export function add_users(names) {
  for (const name of [...names, me()]) if (name) users.add(name);
  const sorted = [...users].sort((a, b) => a.localeCompare(b));
  update_choices(user_choice, ["", ...sorted], "all users");
  update_choices(me_choice, ["", ...sorted], "not chosen");
  me_choice.value = me();
  update_only_mine();
}

function update_only_mine() {
  only_mine.disabled = me() === "";
  if (only_mine.disabled) only_mine.checked = false;
  set_attribute(/** @type {Element} */ (only_mine.parentElement), "title", only_mine.disabled ? "Choose your name at “You are” first" : null);
}

/** @param {HTMLSelectElement} select @param {string[]} values @param {string} none the text of the empty value */
function update_choices(select, values, none) {
  update_children(select, values, (value) => value, () => {
    const node = h("option");
    return {
      node,
      update(value) {
        set_attribute(node, "value", value);
        set_text(node, value === "" ? none : printable(value, 40));
      },
    };
  });
}

element("filter").addEventListener("submit", (event) => event.preventDefault());
for (const control of [search, user_choice, only_mine]) control.addEventListener("input", () => on_change());
me_choice.addEventListener("input", () => {
  localStorage.setItem(KEY, me_choice.value);
  update_only_mine();
  on_change();
});
element("show-all").addEventListener("click", () => {
  search.value = user_choice.value = "";
  only_mine.checked = false;
  shown_state = null;
  on_change();
  search.focus();
});
