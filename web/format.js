// @ts-check
// Formats sizes, times and text of users. An unknown value is a dash, never 0.

export const UNKNOWN = "–";

// Control characters, and characters that are invisible or change the text direction: the same as printable() of
// src/base/text.cpp escapes.
const UNPRINTABLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;

/**
 * Escapes invisible characters in text from users, drivers and files.
 * @param {string | null | undefined} text
 * @param {number} [limit] maximum length in characters
 */
export function printable(text, limit = 2000) {
  if (text === null || text === undefined) return "";
  const cut = text.length > limit ? `${text.slice(0, limit)}…` : text;
  return cut.replace(UNPRINTABLE, (c) => `\\u${(c.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`);
}

/** @param {number | null | undefined} mib */
export function memory(mib) {
  if (mib === null || mib === undefined) return UNKNOWN;
  if (mib < 1024) return `${mib} MiB`;
  const gib = mib / 1024;
  return `${gib < 100 && gib % 1 !== 0 ? gib.toFixed(1) : Math.round(gib)} GiB`;
}

/** @param {number | null | undefined} value @param {string} unit */
export function measure(value, unit) {
  return value === null || value === undefined ? UNKNOWN : `${Math.round(value)} ${unit}`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {number | null | undefined} value */
export function hours(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value > 0 && value < 0.05) return "<0.1";
  return value < 100 ? value.toFixed(1) : value.toFixed(0);
}

const CLOCK = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit"});
const DAY = new Intl.DateTimeFormat("en-GB", {weekday: "short", day: "numeric", month: "short"});

/** @param {number} time */
export function clock(time) {
  return CLOCK.format(time);
}

/** @param {number} time */
export function day(time) {
  return DAY.format(time);
}

/**
 * The time of day, with the day if it is not today.
 * @param {number} time
 */
export function moment(time) {
  const today = new Date(now()).toDateString() === new Date(time).toDateString();
  return today ? clock(time) : `${day(time)}, ${clock(time)}`;
}

/**
 * A duration that is an estimate, without false precision: "about 7 h".
 * @param {number} seconds
 */
export function estimate(seconds) {
  if (seconds < 60) return "less than a minute";
  return `about ${seconds < 3 * 3600 || seconds >= 24 * 3600 ? duration(seconds) : `${Math.round(seconds / 3600)} h`}`;
}

/**
 * The same in less room: "~7 h".
 * @param {number} seconds
 */
export function short_estimate(seconds) {
  return estimate(seconds).replace("about ", "~");
}

let skew = 0;

/** The server's time in milliseconds: the clock of the viewer's computer may be wrong. */
export function now() {
  return Date.now() + skew;
}

/**
 * Sets the server's time. Differences below 30 s are ignored, because the time of a sample is not exact.
 * @param {string} time
 */
export function set_clock(time) {
  const difference = Date.parse(time) - Date.now();
  skew = Math.abs(difference) > 30000 ? difference : 0;
}

/**
 * The seconds since a time.
 * @param {string} time
 */
export function age(time) {
  return (now() - Date.parse(time)) / 1000;
}

/** @param {number} count @param {string} one @param {string} [many] */
export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}
