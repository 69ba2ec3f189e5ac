// @ts-check
// The detached jobs and batches of the user who runs the server. The server sends them only to holders of the token.
import {call, stored_token} from "./api.js";
import {job_title} from "./cards.js";
import {confirm_change, describe_job_end, is_ending} from "./changes.js";
import {element, h, set_attribute, set_text, set_visible, svg, update_children} from "./dom.js";
import {is_service} from "./filter.js";
import {age, duration, moment, now, plural, printable, short_estimate} from "./format.js";
import {JOB_ICONS, server} from "./model.js";

/** @typedef {import("./model.js").Job} Job */
/** @typedef {import("./model.js").JobIcon} JobIcon */

const FEW_ENDED = 5;
const OUTPUT_INTERVAL_MS = 2000;

let all_ended_shown = false;

/**
 * @param {Job[] | null} jobs those that the filter selects; null: the server sends none
 * @param {{total: number, filtered: boolean}} list
 */
export function show_jobs(jobs, {total, filtered}) {
  const {hello} = server;
  // A service usually has no jobs: that is not worth a section.
  set_visible(element("jobs"), jobs !== null && (total > 0 || (hello !== null && !is_service(hello.user))));
  set_visible(element("jump-jobs"), !element("jobs").hidden);
  if (jobs === null) return;
  const active = jobs.filter((job) => job.state !== "ended");
  const ended = jobs.filter((job) => job.state === "ended");
  const shown_ended = all_ended_shown || filtered ? ended : ended.slice(0, FEW_ENDED);
  set_text(element("jump-jobs"), `Jobs (${active.length})`);
  set_text(element("jobs-user"), printable(hello?.user));
  update_children(element("jobs-list"), [...active, ...shown_ended], (job) => job.id, job_view);
  set_visible(element("jobs-list"), jobs.length > 0);
  set_visible(element("jobs-empty"), total === 0);
  const rest = ended.length - shown_ended.length;
  set_text(element("jobs-all"), `Show ${plural(rest, "more ended job")}`);
  set_visible(element("jobs-all"), rest > 0);
  set_text(element("jobs-more"), filtered ? "No job matches the filter." :
    `${total - jobs.length} more are not shown; berth jobs lists all.`);
  set_visible(element("jobs-more"), filtered ? jobs.length === 0 && total > 0 : total > jobs.length);
}

/** @param {() => void} redraw */
export function watch_jobs(redraw) {
  element("jobs-all").addEventListener("click", () => {
    all_ended_shown = true;
    redraw();
    element("jobs").focus({preventScroll: true}); // the button is hidden now
  });
}

/** @returns {import("./dom.js").View<Job>} */
function job_view() {
  const badge = h("span", {class: "badge"});
  const what = h("bdi", {class: "what"});
  const id = h("code", {class: "job-id"});
  const place = h("span");
  const times = h("span", {class: "job-times"});
  const expected = h("span", {class: "end"});
  const reason = h("p", {class: "why"});
  const progress = batch_bar();
  const output = output_view();
  const stop = h("button", {type: "button", class: "quiet"});
  const node = h("li", {class: "job-row"}, badge,
      h("div", {class: "job-what"}, what, h("div", {class: "line"}, id, reason), progress.node),
      h("div", {class: "job-when"}, place, times, expected), h("div", {class: "buttons"}, output.button, stop), output.node);
  /** @type {Job} */
  let last;
  let icon = "";
  stop.addEventListener("click", () => confirm_change("end", {id: last.id, what: `job ${last.id}`, detail: describe_end_of(last),
    verb: verb_for(last)}));
  return {
    node,
    update(job) {
      last = job;
      const kind = icon_of(job);
      set_attribute(node, "data-job", kind);
      const word = describe_state(job);
      if (icon !== kind + word) {
        icon = kind + word;
        badge.replaceChildren(svg("svg", {viewBox: "0 0 16 16", class: "shape", "aria-hidden": "true"},
            svg("path", {d: JOB_ICONS[kind], "fill-rule": "evenodd"})), word);
      }
      set_text(what, job_title(job));
      set_attribute(what, "title", what.textContent);
      set_text(id, `${job.kind === "batch" ? "batch " : ""}${job.id}`);
      set_text(place, [describe_gpus(job), is_elsewhere(job) && `on ${printable(job.host, 100)}`].filter(Boolean).join(" "));
      set_visible(place, place.textContent !== "");
      set_text(times, describe_times(job));
      set_attribute(times, "title", describe_moments(job));
      const end = describe_expected(job);
      set_text(expected, end);
      set_visible(expected, end !== "");
      set_text(reason, printable(job.reason, 300));
      set_attribute(reason, "title", reason.textContent);
      set_visible(reason, job.reason !== null);
      progress.update(job);
      output.update(job);
      // A home folder may be shared by several hosts; the server acts only on its own.
      const may_change = server.hello?.changes === true && stored_token() !== null && !is_elsewhere(job);
      const ending = is_ending(job.id);
      set_text(stop, ending ? "Ending …" : verb_for(job));
      set_attribute(stop, "aria-label", `${stop.textContent} job ${job.id}`);
      stop.disabled = ending;
      set_visible(stop, may_change && job.state !== "ended");
    },
  };
}

/** @param {Job} job */
function is_elsewhere(job) {
  return job.host !== null && job.host !== server.hello?.host;
}

/** @param {Job} job */
function verb_for(job) {
  return job.state === "running" ? "End" : "Cancel";
}

/** What the confirmation says. @param {Job} job */
function describe_end_of(job) {
  if (job.state !== "running") {
    return describe_job_end(job, `It has been ${job.state} for ${duration(age(job.submitted))}, and will not start.`, "");
  }
  const gpus = describe_gpus(job);
  const lines = job.batch ? ` ${job.batch.running} of its ${plural(job.batch.total, "line")} ${job.batch.running === 1 ? "is" : "are"} running.` : "";
  return describe_job_end(job, `It has been running for ${duration(age(job.started ?? job.submitted))}${gpus ? ` on ${gpus}` : ""}.${lines}`);
}

/** @param {Job} job @returns {JobIcon} */
function icon_of(job) {
  if (job.state !== "ended") return job.state;
  return job.result === "succeeded" || job.result === "failed" ? job.result : "unknown";
}

/** @param {Job} job */
function describe_state(job) {
  if (job.state !== "ended") return job.state === "waiting" && job.position !== null ? `waiting, position ${job.position}` : job.state;
  if (job.exit_code === null) return "exit code unknown";
  return job.exit_code === 0 ? "succeeded" : `failed, exit code ${job.exit_code}`;
}

/** @param {Job} job */
function describe_gpus(job) {
  if (job.gpus.length === 0) return "";
  const sorted = [...job.gpus].sort((a, b) => `${a}`.localeCompare(`${b}`, "en", {numeric: true}));
  return `${sorted.length === 1 ? "GPU" : "GPUs"} ${sorted.map((gpu) => printable(`${gpu}`, 60)).join(", ")}`;
}

/** @param {Job} job */
function describe_times(job) {
  if (job.state !== "ended") {
    const since = job.state === "running" ? job.started ?? job.submitted : job.submitted;
    return `since ${moment(Date.parse(since))}, ${duration(age(since))}`;
  }
  if (job.ended === null) return `submitted ${moment(Date.parse(job.submitted))}`;
  const lasted = job.started === null ? "" : `, ran ${duration((Date.parse(job.ended) - Date.parse(job.started)) / 1000)}`;
  return `ended ${moment(Date.parse(job.ended))}${lasted}`;
}

/** @param {Job} job */
function describe_moments(job) {
  return [`submitted ${moment(Date.parse(job.submitted))}`, job.started && `started ${moment(Date.parse(job.started))}`,
    job.ended && `ended ${moment(Date.parse(job.ended))}`].filter(Boolean).join(", ");
}

/** The expected start or end. @param {Job} job */
function describe_expected(job) {
  if (job.state === "waiting" && job.starts !== null) {
    const left = -age(job.starts);
    return left < 60 ? "starts about now" : `starts in ${short_estimate(left)}`;
  }
  if (job.state !== "running" || job.ends === null) return "";
  const end = Date.parse(job.ends);
  if (end < now()) return `overdue by ${duration((now() - end) / 1000)}`;
  return job.ends_source === "announced" ? `until ${moment(end)}, ${duration((end - now()) / 1000)} left` :
    `estimate: ${duration((end - now()) / 1000)} left`;
}

/** The lines of a batch: succeeded, failed and running, of all. */
function batch_bar() {
  const parts = ["done", "failed", "busy"].map((kind) => h("div", {class: kind}));
  const track = h("div", {class: "batch-track", role: "img"}, ...parts);
  const words = h("p", {class: "words"});
  const node = h("div", {class: "batch"}, words, track);
  return {
    node,
    /** @param {Job} job */
    update({batch}) {
      set_visible(node, batch !== null);
      if (batch === null) return;
      const {total, succeeded, failed, running} = batch;
      [succeeded, failed, running].forEach((count, i) => {
        const width = `${total > 0 ? (100 * Math.min(count, total)) / total : 0}%`;
        if (parts[i].style.width !== width) parts[i].style.width = width;
      });
      const text = [`${succeeded + failed} of ${plural(total, "line")} done`, failed && `${failed} failed`, running && `${running} running`]
          .filter(Boolean).join(", ");
      set_text(words, text);
      set_attribute(track, "aria-label", text);
    },
  };
}

// Escape sequences of terminals: colours, moves of the cursor, titles.
const TERMINAL_CODES = /\u001b\[[0-?]*[ -\u002f]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)/g;

/**
 * The output of a job as text: without terminal codes, and of a progress bar only its last state.
 * @param {string} text
 */
function readable(text) {
  return text.replace(TERMINAL_CODES, "").split("\n").map((line) => {
    const last = line.replace(/\r+$/, "").split("\r").pop() ?? "";
    return printable(last.replaceAll("\t", "    "), 4000);
  }).join("\n").trimEnd();
}

/** The end of the output, read again while it is open and the job goes on. */
function output_view() {
  const text = h("pre", {tabindex: 0, role: "region"});
  const note = h("p", {class: "hint"});
  const node = h("div", {class: "job-output", hidden: true}, note, text);
  const button = h("button", {type: "button", class: "quiet", "aria-expanded": "false"}, "Output");
  /** @type {Job} */
  let job;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  async function load() {
    clearTimeout(timer);
    if (node.hidden || !node.isConnected) return;
    const ended = job.state === "ended"; // before the output is read: then it is complete
    if (!document.hidden) {
      const answer = await call(`jobs/${encodeURIComponent(job.id)}/output`);
      const at_end = text.scrollHeight - text.scrollTop - text.clientHeight < 8;
      if (answer.problem === null) set_text(text, readable(answer.data.text) || "It has written nothing so far.");
      set_text(note, answer.problem ?? (answer.data.truncated ? "The last part; berth logs prints all." : ""));
      set_visible(note, note.textContent !== "");
      set_visible(text, answer.problem === null);
      if (at_end) text.scrollTop = text.scrollHeight;
    }
    if (!ended) timer = setTimeout(load, OUTPUT_INTERVAL_MS);
  }
  button.addEventListener("click", () => {
    set_visible(node, node.hidden);
    set_attribute(button, "aria-expanded", `${!node.hidden}`);
    load();
  });
  return {
    node,
    button,
    /** @param {Job} next */
    update(next) {
      job = next;
      set_attribute(button, "aria-label", `Output of job ${job.id}`);
      set_attribute(text, "aria-label", `Output of job ${job.id}`);
      set_visible(button, server.hello?.changes === true && stored_token() !== null);
    },
  };
}
