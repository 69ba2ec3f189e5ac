// @ts-check
// The live connection: opened again by itself, whatever ends it, and closed while nobody looks.
import {call} from "./api.js";

/** @typedef {"connecting"|"live"|"lost"|"token"} Link */

const EVENTS = ["hello", "samples", "status", "sample", "problem", "history"];
const LONGEST_PAUSE = 10_000;
// A sample comes every 10 s. A connection that says nothing for so long is dead, though nobody has closed it.
const SILENCE = 35_000;
// A browser has few connections to one server: tabs in the background leave theirs to others.
const HIDDEN_FOR = 30_000;

/**
 * @param {(name: string, data: any) => void} on_event
 * @param {(link: Link, why: string) => void} on_link
 */
export function stream(on_event, on_link) {
  /** @type {EventSource | null} */
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
    source?.close();
    source = null;
  }

  function open() {
    close();
    const opened = new EventSource("api/v1/events");
    source = opened;
    for (const name of EVENTS) {
      opened.addEventListener(name, (event) => {
        if (source !== opened) return;
        heard();
        if (name === "hello") {
          failures = 0;
          on_link("live", "");
        }
        on_event(name, JSON.parse(/** @type {MessageEvent} */ (event).data));
      });
    }
    opened.onerror = () => source === opened && failed();
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
