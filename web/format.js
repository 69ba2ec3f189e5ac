// @ts-check
// Sizes, times and foreign text as people read them. Unknown is a dash, never 0.

export const UNKNOWN = "–";

// Control characters, and those that are invisible or change the direction of what follows: as printable() has it.
const UNPRINTABLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;

/**
 * Text from users, drivers and files, with what cannot be seen made visible.
 * @param {string | null | undefined} text
 * @param {number} [limit] characters at most
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
 * A moment: the clock, with the day where it is not today.
 * @param {number} time
 */
export function moment(time) {
  const today = new Date(now()).toDateString() === new Date(time).toDateString();
  return today ? clock(time) : `${day(time)}, ${clock(time)}`;
}

let skew = 0;

/** The server's time, in milliseconds: a viewer's clock may be wrong. */
export function now() {
  return Date.now() + skew;
}

/**
 * What the server's clock says just now, give or take some seconds.
 * @param {string} time
 */
export function set_clock(time) {
  const difference = Date.parse(time) - Date.now();
  skew = Math.abs(difference) > 30000 ? difference : 0;
}

/** @param {string} time seconds since then */
export function age(time) {
  return (now() - Date.parse(time)) / 1000;
}

/** @param {number} count @param {string} one @param {string} [many] */
export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}
