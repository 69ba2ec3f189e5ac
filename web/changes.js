// @ts-check
// Cancel, release, drain and undrain: each needs a confirmation; the dialog shows why the server refuses.
import {call, stored_token} from "./api.js";
import {element, set_text, set_visible} from "./dom.js";
import {server} from "./model.js";

/** @typedef {"cancel"|"release"|"drain"|"undrain"} Change */

const CHANGES = /** @type {Record<Change, {path: string, title: (what: string) => string, text: string, yes: string}>} */ ({
  cancel: {path: "tickets", yes: "Cancel the ticket", title: (what) => `Cancel ${what}?`,
    text: "The ticket leaves the queue, and its berth run exits."},
  release: {path: "leases", yes: "Release", title: (what) => `Release ${what}?`,
    text: "Its GPUs can be granted to the next ticket, even if a process still uses them."},
  drain: {path: "gpus", yes: "Drain", title: (what) => `Drain ${what}?`,
    text: "Running jobs continue. The GPU is not granted again until it is undrained."},
  undrain: {path: "gpus", yes: "Undrain", title: (what) => `Undrain ${what}?`,
    text: "The GPU can be granted again, at once if a ticket waits for it."},
});

/**
 * Whether the server may change something on this host, and of this owner. A server can change things only on its own
 * host, and only those of its own user unless that is root.
 * @param {import("./model.js").Host} host
 * @param {string} [owner]
 */
export function can_change(host, owner) {
  const {hello} = server;
  if (!hello?.changes || !stored_token() || host.host !== hello.host) return false;
  return owner === undefined || owner === hello.user || hello.user === "root";
}

const dialog = /** @type {HTMLDialogElement} */ (element("dialog"));
const reason = /** @type {HTMLInputElement} */ (element("dialog-reason"));
const yes = /** @type {HTMLButtonElement} */ (element("dialog-yes"));
/** @type {{change: Change, id: string} | null} */
let asked = null;

/**
 * Shows the confirmation dialog; its submit handler sends the change.
 * @param {Change} change
 * @param {{id: string, what: string}} about
 */
export function confirm_change(change, {id, what}) {
  asked = {change, id};
  const {title, text, yes: word} = CHANGES[change];
  set_text(element("dialog-title"), title(what));
  set_text(element("dialog-text"), text);
  set_text(yes, word);
  set_text(element("dialog-error"), "");
  set_visible(element("dialog-field"), change === "drain");
  reason.value = "";
  yes.disabled = false;
  dialog.showModal();
  (change === "drain" ? reason : element("dialog-no")).focus();
}

element("dialog-no").addEventListener("click", () => dialog.close());
element("dialog-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!asked) return;
  const {change, id} = asked;
  yes.disabled = true;
  set_text(element("dialog-error"), "");
  const answer = await call(`${CHANGES[change].path}/${encodeURIComponent(id)}/${change}`,
      change === "drain" ? {reason: reason.value} : {});
  yes.disabled = false;
  if (answer.problem === null) dialog.close();
  else set_text(element("dialog-error"), answer.problem);
});
