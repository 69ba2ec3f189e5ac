// @ts-check
// Cancel, end, release, drain and undrain: each needs a confirmation; the dialog shows why the server refuses.
import {call, stored_token} from "./api.js";
import {element, set_text, set_visible} from "./dom.js";
import {printable} from "./format.js";
import {server} from "./model.js";

/** @typedef {"cancel"|"end"|"release"|"drain"|"undrain"} Change */

const CHANGES = /** @type {Record<Change, {path: string, title: (what: string) => string, text: string, yes: string, verb?: string}>} */ ({
  cancel: {path: "tickets", yes: "Cancel the ticket", title: (what) => `Cancel ${what}?`,
    text: "The ticket leaves the queue, and its berth run exits."},
  end: {path: "jobs", verb: "cancel", yes: "End", title: (what) => `End ${what}?`, text: ""},
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
const no = /** @type {HTMLButtonElement} */ (element("dialog-no"));
/** @typedef {{id: string, what: string, detail?: string, verb?: string}} About `detail` and `verb`: of a job that is to end */
/** @type {{change: Change, about: About} | null} */
let asked = null;

/** @type {Set<string>} the jobs whose end was requested, and has no answer yet */
const ending = new Set();
/** @type {() => void} */
let on_ending_change = () => {};

/** Whether the end of this job was requested, and is not done. @param {string} id */
export function is_ending(id) {
  return ending.has(id);
}

/** @param {() => void} callback called when is_ending() of a job has changed */
export function watch_endings(callback) {
  on_ending_change = callback;
}

/** @param {string} id @param {boolean} is_now */
function set_ending(id, is_now) {
  if (is_now) ending.add(id);
  else ending.delete(id);
  on_ending_change();
}

/**
 * What the confirmation of an end says: the job, since when it runs, and how it is ended.
 * @param {{label: string|null, command: string|null}} job
 * @param {string} since
 * @param {string} how
 */
export function describe_job_end({label, command}, since,
    how = "Its processes get SIGTERM, and SIGKILL if they have not ended after 10 s.") {
  const title = [label, command].filter(Boolean).map((text) => printable(text, 160)).join(" · ");
  return [title || "Its command is not shown.", since, how].filter(Boolean).join("\n\n");
}

/**
 * Shows the confirmation dialog; its submit handler sends the change.
 * @param {Change} change
 * @param {About} about
 */
export function confirm_change(change, about) {
  asked = {change, about};
  const {title, text, yes: word} = CHANGES[change];
  const name = title(about.what);
  set_text(element("dialog-title"), about.verb === "Cancel" ? name.replace(/^End /, "Cancel ") : name);
  set_text(element("dialog-text"), about.detail ?? text);
  set_text(yes, change === "end" ? `${about.verb ?? word} ${about.what}` : word);
  set_text(no, "Keep as it is");
  set_text(element("dialog-error"), "");
  set_visible(element("dialog-field"), change === "drain");
  reason.value = "";
  yes.disabled = false;
  dialog.showModal();
  (change === "drain" ? reason : no).focus();
}

no.addEventListener("click", () => dialog.close());
element("dialog-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!asked) return;
  const request = asked;
  const {change, about} = request;
  const word = yes.textContent ?? "";
  yes.disabled = true;
  set_text(element("dialog-error"), "");
  if (change === "end") {
    // This may take the grace time; the viewer may close the dialog meanwhile, and open another one.
    set_text(yes, "Ending …");
    set_text(no, "Close");
    set_ending(about.id, true);
  }
  const {path, verb = change} = CHANGES[change];
  const answer = await call(`${path}/${encodeURIComponent(about.id)}/${verb}`, change === "drain" ? {reason: reason.value} : {});
  if (change === "end") {
    set_ending(about.id, false);
    set_text(element("announcer"), printable(answer.problem ?? answer.data.message, 300));
  }
  if (asked !== request) return;
  if (answer.problem === null) return dialog.close();
  // Also if the viewer has closed the dialog meanwhile.
  if (!dialog.open) dialog.showModal();
  set_text(yes, word);
  yes.disabled = false;
  set_text(no, "Close");
  set_text(element("dialog-error"), answer.problem);
});
