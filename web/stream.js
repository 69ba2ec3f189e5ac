// @ts-check
// The event stream from the server. It reconnects automatically, and is closed while the page is hidden.
import {authorization, call} from "./api.js";

/** @typedef {"connecting"|"live"|"lost"|"token"} ConnectionState */

const MAX_RETRY_DELAY_MS = 10_000;
// The server sends a sample every 10 s. A connection that is silent for so long is broken, even if it was not closed.
const SILENCE_TIMEOUT_MS = 35_000;
// A browser opens only a few connections to one server, so tabs in the background must not occupy them.
const HIDDEN_TIMEOUT_MS = 30_000;

/**
 * Reads the events of the server until the connection ends. An EventSource cannot send the token in a header.
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
 * @param {(link: ConnectionState, why: string) => void} on_state
 * @param {() => boolean} is_wanted_hidden whether the stream is to stay open while the page is hidden
 */
export function stream(on_event, on_state, is_wanted_hidden) {
  /** @type {AbortController | null} */
  let connection = null;
  let failures = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let retry_timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let silence_timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let hidden_timer;

  function close() {
    clearTimeout(retry_timer);
    clearTimeout(silence_timer);
    connection?.abort();
    connection = null;
  }

  function open() {
    close();
    const new_connection = new AbortController();
    connection = new_connection;
    const on_end = () => connection === new_connection && reconnect();
    read_events(new_connection.signal, (name, data) => {
      if (connection !== new_connection) return;
      restart_silence_timer();
      if (name === "hello") {
        failures = 0;
        on_state("live", "");
      }
      on_event(name, JSON.parse(data));
    }).then(on_end, on_end);
    restart_silence_timer();
  }

  function restart_silence_timer() {
    clearTimeout(silence_timer);
    silence_timer = setTimeout(reconnect, SILENCE_TIMEOUT_MS);
  }

  async function reconnect() {
    close();
    failures += 1;
    retry_timer = setTimeout(open, Math.min(MAX_RETRY_DELAY_MS, 500 * 2 ** failures) * (0.75 + Math.random() / 2));
    on_state("lost", "");
    // The browser does not report why the stream failed; an ordinary request may get a reason from the server.
    const answer = await call("queue");
    if (connection !== null || answer.status === 0) return;
    if (answer.status === 401) {
      close();
      on_state("token", answer.problem ?? "");
    } else if (answer.problem !== null) {
      on_state("lost", answer.problem);
    } else {
      open();
    }
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden_timer);
    if (document.hidden && !is_wanted_hidden()) hidden_timer = setTimeout(close, HIDDEN_TIMEOUT_MS);
    else if (!document.hidden && connection === null) open();
  });
  addEventListener("online", () => connection === null && open());
  open();
  return {open};
}
