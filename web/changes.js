// @ts-check
// Cancel, release, drain and undrain: each asks first, and shows what the server answers if it refuses.
import {call, token} from "./api.js";
import {part, say, show} from "./dom.js";
import {server} from "./model.js";

/** @typedef {"cancel"|"release"|"drain"|"undrain"} Change */

const CHANGES = /** @type {Record<Change, {path: string, title: (what: string) => string, text: string, yes: string}>} */ ({
  cancel: {path: "tickets", yes: "Cancel the ticket", title: (what) => `Cancel ${what}?`,
    text: "It leaves the queue, and its berth run ends."},
  release: {path: "leases", yes: "Release", title: (what) => `Release ${what}?`,
    text: "Its GPUs go to whoever is next, also if something still uses them."},
  drain: {path: "gpus", yes: "Drain", title: (what) => `Drain ${what}?`,
    text: "Jobs on it go on; nobody is granted it until it is undrained."},
  undrain: {path: "gpus", yes: "Undrain", title: (what) => `Undrain ${what}?`,
    text: "It is granted again, at once if somebody waits for it."},
});

/**
 * May who serves change things there, and those of this user? Only where he serves.
 * @param {import("./model.js").Host} host
 * @param {string} [owner]
 */
export function may_change(host, owner) {
  const {hello} = server;
  if (!hello?.changes || !token() || host.host !== hello.host) return false;
  return owner === undefined || owner === hello.user || hello.user === "root";
}

const dialog = /** @type {HTMLDialogElement} */ (part("dialog"));
const reason = /** @type {HTMLInputElement} */ (part("dialog-reason"));
const yes = /** @type {HTMLButtonElement} */ (part("dialog-yes"));
/** @type {{change: Change, id: string} | null} */
let asked = null;

/**
 * Asks whether it shall be done, and does it.
 * @param {Change} change
 * @param {{id: string, what: string}} about
 */
export function ask(change, {id, what}) {
  asked = {change, id};
  const {title, text, yes: word} = CHANGES[change];
  say(part("dialog-title"), title(what));
  say(part("dialog-text"), text);
  say(yes, word);
  say(part("dialog-error"), "");
  show(part("dialog-field"), change === "drain");
  reason.value = "";
  yes.disabled = false;
  dialog.showModal();
  (change === "drain" ? reason : part("dialog-no")).focus();
}

part("dialog-no").addEventListener("click", () => dialog.close());
part("dialog-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!asked) return;
  const {change, id} = asked;
  yes.disabled = true;
  say(part("dialog-error"), "");
  const answer = await call(`${CHANGES[change].path}/${encodeURIComponent(id)}/${change}`,
      change === "drain" ? {reason: reason.value} : {});
  yes.disabled = false;
  if (answer.problem === null) dialog.close();
  else say(part("dialog-error"), answer.problem);
});
