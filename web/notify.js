// @ts-check
// Browser notifications, if the viewer wants them: when a job of theirs starts after waiting or ends, and when a GPU becomes
// free after none was. The page must stay open, but not visible.
import {call} from "./api.js";
import {job_title} from "./cards.js";
import {element, set_attribute, set_text} from "./dom.js";
import {me} from "./filter.js";
import {printable} from "./format.js";
import {describe_ending} from "./timeline_popup.js";

/** @typedef {import("./model.js").Host} Host */

const KEY = "berth-notify";
const choice = /** @type {HTMLInputElement} */ (element("notify"));

/** Whether the page is to receive events while it is hidden. */
export function is_notifying() {
  return choice.checked;
}

function set_up() {
  // Browsers have no notifications on pages of plain HTTP, other than those of localhost.
  const possible = "Notification" in window && isSecureContext;
  choice.disabled = !possible;
  choice.checked = possible && Notification.permission === "granted" && localStorage.getItem(KEY) === "yes";
  if (!possible) set_attribute(element("notify-label"), "title", "Notifications need HTTPS, or an ssh tunnel to localhost");
}

choice.addEventListener("change", async () => {
  if (choice.checked && (await Notification.requestPermission()) !== "granted") {
    refuse("the browser refuses");
  }
  localStorage.setItem(KEY, choice.checked ? "yes" : "no");
});

/** @param {string} why */
function refuse(why) {
  choice.checked = false;
  set_text(element("notify-text"), `Notify me (${why})`);
}

/** @param {string} title @param {string} text */
function notify(title, text) {
  try {
    new Notification(title, {body: text, icon: "favicon.svg"});
  } catch {
    refuse("this browser has none"); // those of phones allow it to service workers only
  }
}

/** @param {Host[]} hosts @returns {Map<string, {id: string, title: string, gpus: string[]}>} the viewer's leases */
function own_leases(hosts) {
  const found = new Map();
  for (const host of hosts) {
    for (const gpu of host.gpus) {
      for (const lease of gpu.leases.filter(({user}) => user === me())) {
        const key = `${host.host}/${lease.id}`;
        const one = found.get(key) ?? {id: lease.id, title: job_title(lease), gpus: []};
        one.gpus.push(`GPU ${gpu.index}${hosts.length > 1 ? ` of ${printable(host.host)}` : ""}`);
        found.set(key, one);
      }
    }
  }
  return found;
}

/** @type {{id: string, title: string, last_try: boolean}[]} leases whose end is not in the history yet */
let ended = [];

/** Notifies of the viewer's jobs that have ended. Call it when the history has changed: it tells how they ended. */
export async function notify_ends() {
  if (ended.length === 0) return;
  const leases = ended;
  ended = [];
  const answer = await call(`log?${new URLSearchParams({since: "1h", user: me()})}`);
  for (const lease of leases) {
    const line = answer.data?.leases.findLast((/** @type {import("./model.js").LoggedLease} */ one) =>
      one.lease === lease.id && one.ending !== "running");
    if (line) notify(`Your job has ended: ${describe_ending(line)}`, lease.title);
    else if (lease.last_try) notify("Your job has ended", lease.title);
    else ended.push({...lease, last_try: true}); // this change of the history was of another lease
  }
}

/**
 * Notifies of what has changed between two states of the hosts.
 * @param {Host[]} before
 * @param {Host[]} next
 */
export function notify_changes(before, next) {
  if (!choice.checked || before.length === 0) return;
  if (me() !== "") {
    const [old_leases, leases] = [own_leases(before), own_leases(next)];
    // A lease has the id of its ticket.
    const waited = new Set(before.flatMap((host) => host.queue.map((ticket) => ticket.ticket)));
    for (const [key, lease] of leases) {
      if (!old_leases.has(key) && waited.has(lease.id)) notify(`Your job has started on ${lease.gpus.join(", ")}`, lease.title);
    }
    for (const [key, lease] of old_leases) if (!leases.has(key)) ended.push({...lease, last_try: false});
  }
  // While tickets wait, a free GPU is one that they are about to get.
  if (next.some((host) => host.queue.length > 0)) return;
  const free = (/** @type {Host[]} */ hosts) => hosts.flatMap((host) => host.gpus.filter((gpu) => gpu.state === "free"));
  if (free(before).length === 0 && free(next).length > 0) {
    notify(`GPU ${free(next).map((gpu) => gpu.index).join(", ")} is free`, "No GPU was free before.");
  }
}

set_up();
