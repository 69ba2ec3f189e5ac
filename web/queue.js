// @ts-check
// Who waits, why, and for how long still; and leases that nobody uses.
import {attribute, each, h, part, say, show} from "./dom.js";
import {age, duration, memory, moment, plural, visible} from "./format.js";
import {colours_of} from "./people.js";
import {ask, may_change} from "./changes.js";
import {what_of} from "./cards.js";

/** @typedef {import("./model.js").Host} Host */
/** @typedef {import("./model.js").Ticket} Ticket */
/** @typedef {import("./model.js").Lease} Lease */

const nobody = h("div", {class: "empty"}, h("p", {}, "Nobody waits."),
    h("p", {class: "hint"}, "Who finds no free GPU takes a place here:"), h("code", {}, "berth run -- python train.py"));

/** @param {Host[]} hosts */
export function show_queues(hosts) {
  const several = hosts.length > 1;
  const waiting = hosts.filter((host) => host.queue.length > 0);
  const place = part("queues");
  each(place, waiting, (host) => host.host, () => queue_view(() => several));
  if (waiting.length === 0) place.append(nobody);
  else nobody.remove();
}

/** @param {() => boolean} several @returns {import("./dom.js").View<Host>} */
function queue_view(several) {
  const name = h("h3");
  const list = h("ol", {class: "plain tickets"});
  const more = h("p", {class: "hint"});
  return {
    node: h("div", {}, name, list, more),
    update(host) {
      say(name, visible(host.host));
      show(name, several());
      each(list, host.queue.map((ticket) => ({ticket, host})), ({ticket}) => ticket.ticket, ticket_view);
      const unseen = (host.queue_length ?? host.queue.length) - host.queue.length;
      say(more, `and ${unseen} more behind them`);
      show(more, unseen > 0);
    },
  };
}

/** @returns {import("./dom.js").View<{ticket: Ticket, host: Host}>} */
function ticket_view() {
  const position = h("span", {class: "position"});
  const swatch = h("span", {"aria-hidden": "true"});
  const user = h("bdi", {class: "user"});
  const wants = h("span", {class: "since"});
  const what = h("bdi", {class: "what"});
  const reason = h("p", {class: "why"});
  const times = h("p", {class: "times"});
  const cancel = h("button", {type: "button", class: "quiet"}, "Cancel");
  const node = h("li", {}, position, h("div", {class: "body"},
      h("div", {class: "line"}, swatch, user, wants), what, reason, h("div", {class: "foot"}, times, cancel)));
  /** @type {Ticket} */
  let last;
  cancel.addEventListener("click", () => ask("cancel",
      {id: last.ticket, what: `the ticket of ${visible(last.user)}`}));
  return {
    node,
    update({ticket, host}) {
      last = ticket;
      say(position, `${ticket.position}`);
      attribute(swatch, "class", `swatch ${colours_of(ticket.user)}`);
      say(user, visible(ticket.user));
      say(wants, `wants ${plural(ticket.count, "GPU")}` +
        (ticket.memory_mib === null ? "" : ` with ${memory(ticket.memory_mib)}`));
      say(what, what_of(ticket));
      say(reason, visible(ticket.reason, 300));
      say(times, `waits ${duration(age(ticket.since))} · ${estimate(ticket)}`);
      attribute(cancel, "aria-label", `Cancel the ticket of ${visible(ticket.user)}, position ${ticket.position}`);
      show(cancel, may_change(host, ticket.user));
    },
  };
}

/** @param {Ticket} ticket */
function estimate(ticket) {
  if (ticket.starts === null) return "start not known";
  const left = -age(ticket.starts);
  return left < 60 ? "starts about now" : `starts about ${moment(Date.parse(ticket.starts))}, in ${duration(left)}`;
}

/** @param {Host[]} hosts */
export function show_idle(hosts) {
  /** @type {Map<string, {lease: Lease, gpus: string[], host: string}>} */
  const idle = new Map();
  for (const host of hosts) {
    for (const gpu of host.gpus) {
      for (const lease of gpu.leases) {
        if (lease.idle_s === null) continue;
        const key = `${host.host}/${lease.id}`;
        const one = idle.get(key) ?? {lease, gpus: [], host: hosts.length > 1 ? `${host.host}, ` : ""};
        one.gpus.push(`${gpu.index}`);
        idle.set(key, one);
      }
    }
  }
  const worst = [...idle.entries()].sort((a, b) => (b[1].lease.idle_s ?? 0) - (a[1].lease.idle_s ?? 0));
  show(part("idle"), worst.length > 0);
  each(part("idle-list"), worst, ([key]) => key, idle_view);
}

/** @returns {import("./dom.js").View<[string, {lease: Lease, gpus: string[], host: string}]>} */
function idle_view() {
  const swatch = h("span", {"aria-hidden": "true"});
  const user = h("bdi", {class: "user"});
  const how = h("span", {class: "idle-mark"});
  const what = h("bdi", {class: "what"});
  return {
    node: h("li", {}, h("div", {class: "line"}, swatch, user, how), what),
    update([, {lease, gpus, host}]) {
      attribute(swatch, "class", `swatch ${colours_of(lease.user)}`);
      say(user, visible(lease.user));
      say(how, `${host}GPU ${gpus.join(", ")} idle for ${duration(lease.idle_s)}`);
      say(what, what_of(lease));
    },
  };
}
