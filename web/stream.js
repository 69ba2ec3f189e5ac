// @ts-check
// The live connection: opened again by itself, whatever ends it, and closed while nobody looks.
import {authorization, call} from "./api.js";

/** @typedef {"connecting"|"live"|"lost"|"token"} Link */

const LONGEST_PAUSE = 10_000;
// A sample comes every 10 s. A connection that says nothing for so long is dead, though nobody has closed it.
const SILENCE = 35_000;
// A browser has few connections to one server: tabs in the background leave theirs to others.
const HIDDEN_FOR = 30_000;

/**
 * Reads the events of the server until the connection ends. Not an EventSource: that cannot send the token in a header.
 * @param {AbortSignal} signal
 * @param {(name: string, data: string) => void} on_event
 */
async function read_events(signal, on_event) {
  const response = await fetch("api/v1/events", {headers: authorization(), cache: "no-store", signal});
  if (!response.ok || !response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = /** @type {string} */ (events.pop());
    for (const event of events) {
      const lines = event.split("\n");
      const field = (/** @type {string} */ key) =>
        lines.filter((line) => line.startsWith(`${key}: `)).map((line) => line.slice(key.length + 2));
      const [name] = field("event");
      if (name !== undefined) on_event(name, field("data").join("\n"));
    }
  }
}

/**
 * @param {(name: string, data: any) => void} on_event
 * @param {(link: Link, why: string) => void} on_link
 */
export function stream(on_event, on_link) {
  /** @type {AbortController | null} */
  let source = null;
  let failures = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let again;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let silence;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let hidden;

  function close() {
    clearTimeout(again);
    clearTimeout(silence);
    source?.abort();
    source = null;
  }

  function open() {
    close();
    const opened = new AbortController();
    source = opened;
    const ended = () => source === opened && failed();
    read_events(opened.signal, (name, data) => {
      if (source !== opened) return;
      heard();
      if (name === "hello") {
        failures = 0;
        on_link("live", "");
      }
      on_event(name, JSON.parse(data));
    }).then(ended, ended);
    heard();
  }

  function heard() {
    clearTimeout(silence);
    silence = setTimeout(failed, SILENCE);
  }

  async function failed() {
    close();
    failures += 1;
    again = setTimeout(open, Math.min(LONGEST_PAUSE, 500 * 2 ** failures) * (0.75 + Math.random() / 2));
    on_link("lost", "");
    // The browser does not say why; the server may.
    const answer = await call("queue");
    if (source !== null || answer.status === 0) return;
    if (answer.status === 401) {
      close();
      on_link("token", answer.problem ?? "");
    } else if (answer.problem !== null) {
      on_link("lost", answer.problem);
    } else {
      open();
    }
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = setTimeout(close, HIDDEN_FOR);
    else if (source === null) open();
  });
  addEventListener("online", () => source === null && open());
  open();
  return {open};
}
