// @ts-check
// The queue, with reasons and expected start times; and the list of idle leases.
import {element, h, set_attribute, set_text, set_visible, update_children} from "./dom.js";
import {matches_user} from "./filter.js";
import {age, duration, moment, plural, printable, short_estimate} from "./format.js";
import {can_change, confirm_change} from "./changes.js";
import {job_title, user_mark} from "./cards.js";

/** @typedef {import("./model.js").Host} Host */
/** @typedef {import("./model.js").Ticket} Ticket */
/** @typedef {import("./model.js").Lease} Lease */

const empty_queue = h("div", {class: "empty"}, h("p", {}, "The queue is empty."),
    h("p", {class: "hint"}, "A request that finds no free GPU waits here:"), h("code", {}, "berth run -- python train.py"));

const no_match = h("p", {class: "empty"}, "No ticket matches the filter.");

/** @param {Host[]} hosts */
export function show_queues(hosts) {
  const several = hosts.length > 1;
  const waiting = hosts.filter((host) => host.queue.length > 0);
  const place = element("queues");
  update_children(place, waiting, (host) => host.host, () => queue_view(() => several));
  empty_queue.remove();
  no_match.remove();
  if (waiting.length === 0) place.append(hosts.some((host) => host.filtered && host.queue_length) ? no_match : empty_queue);
}

/** @param {() => boolean} several @returns {import("./dom.js").View<Host>} */
function queue_view(several) {
  const name = h("h3");
  const list = h("ol", {class: "plain tickets"});
  const more = h("p", {class: "hint"});
  return {
    node: h("div", {}, name, list, more),
    update(host) {
      set_text(name, printable(host.host));
      set_visible(name, several());
      update_children(list, host.queue.map((ticket) => ({ticket, host})), ({ticket}) => ticket.ticket, ticket_view);
      const hidden_count = (host.queue_length ?? host.queue.length) - host.queue.length;
      set_text(more, host.filtered ? `${plural(hidden_count, "other ticket")} not shown` : `and ${hidden_count} more`);
      set_visible(more, hidden_count > 0);
    },
  };
}

/** @returns {import("./dom.js").View<{ticket: Ticket, host: Host}>} */
function ticket_view() {
  const position = h("span", {class: "position"});
  const owner = user_mark();
  const start = h("span", {class: "since start"});
  const request = h("span", {class: "request"});
  const what = h("bdi", {class: "what"});
  const reason = h("p", {class: "why"});
  const unknown_start = h("p", {class: "why"});
  const cancel = h("button", {type: "button", class: "quiet"}, "Cancel");
  const node = h("li", {}, position, h("div", {class: "body"}, h("div", {class: "line"}, ...owner.nodes, start), request, what,
      unknown_start, reason, cancel));
  /** @type {Ticket} */
  let last;
  cancel.addEventListener("click", () => confirm_change("cancel",
      {id: last.ticket, what: `the ticket of ${printable(last.user)}`}));
  return {
    node,
    update({ticket, host}) {
      last = ticket;
      set_text(position, `${ticket.position}`);
      owner.update(ticket.user);
      set_text(start, start_estimate(ticket));
      set_attribute(start, "title", ticket.starts && `expected start: ${moment(Date.parse(ticket.starts))}`);
      set_text(request, printable(ticket.request, 300));
      set_text(what, job_title(ticket));
      set_attribute(what, "title", what.textContent);
      set_text(reason, `waits ${duration(age(ticket.since))}: ${printable(ticket.reason, 300)}`);
      set_attribute(reason, "title", reason.textContent);
      const why = ticket.start_unknown_reason;
      set_text(unknown_start, why === null ? "" : `start unknown: ${printable(why, 300)}`);
      set_attribute(unknown_start, "title", unknown_start.textContent);
      set_visible(unknown_start, why !== null);
      set_attribute(node, "data-start", why === null ? "known" : "unknown");
      set_attribute(cancel, "aria-label", `Cancel the ticket of ${printable(ticket.user)}, position ${ticket.position}`);
      set_visible(cancel, can_change(host, ticket.user));
    },
  };
}

/** @param {Ticket} ticket */
function start_estimate(ticket) {
  if (ticket.starts === null) return "start unknown";
  const seconds_left = -age(ticket.starts);
  return seconds_left < 60 ? "about now" : `in ${short_estimate(seconds_left)}`;
}

/** @param {Host[]} hosts */
export function show_idle(hosts) {
  /** @type {Map<string, {lease: Lease, gpus: string[], host: string}>} */
  const idle = new Map();
  for (const host of hosts) {
    for (const gpu of host.gpus) {
      for (const lease of gpu.leases) {
        if (lease.idle_s === null || !matches_user(lease.user)) continue;
        const key = `${host.host}/${lease.id}`;
        const one = idle.get(key) ?? {lease, gpus: [], host: hosts.length > 1 ? `${host.host}, ` : ""};
        one.gpus.push(`${gpu.index}`);
        idle.set(key, one);
      }
    }
  }
  const longest_idle_first = [...idle.entries()].sort((a, b) => (b[1].lease.idle_s ?? 0) - (a[1].lease.idle_s ?? 0));
  set_visible(element("idle"), longest_idle_first.length > 0);
  update_children(element("idle-list"), longest_idle_first, ([key]) => key, idle_view);
}

/** @returns {import("./dom.js").View<[string, {lease: Lease, gpus: string[], host: string}]>} */
function idle_view() {
  const owner = user_mark();
  const idle_time = h("span", {class: "idle-mark"});
  const what = h("bdi", {class: "what"});
  return {
    node: h("li", {}, h("div", {class: "line"}, ...owner.nodes, idle_time), what),
    update([, {lease, gpus, host}]) {
      owner.update(lease.user);
      set_text(idle_time, `${host}${gpus.length === 1 ? "GPU" : "GPUs"} ${gpus.join(", ")} idle for ${duration(lease.idle_s)}`);
      set_text(what, job_title(lease));
    },
  };
}
