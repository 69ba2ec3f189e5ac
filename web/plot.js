// @ts-check
// A small plot of the last hour: a line over its area, with a gap where nothing is known.
import {attribute, h, say, svg} from "./dom.js";
import {UNKNOWN} from "./format.js";

const POINTS = 360;
const HEIGHT = 40;

/**
 * @param {string} title
 * @param {string} kind a class
 * @param {(value: number) => string} in_words
 */
export function plot(title, kind, in_words) {
  const area = svg("path", {class: "area"});
  const line = svg("path", {class: "line", "vector-effect": "non-scaling-stroke"});
  const picture = svg("svg", {viewBox: `0 -1 ${POINTS} ${HEIGHT + 2}`, preserveAspectRatio: "none", role: "img"},
      area, line);
  const value = h("span", {class: "value"});
  const node = h("div", {class: `plot ${kind}`}, h("div", {class: "caption"}, h("span", {}, title), value), picture);
  return {
    node,
    /** @param {number | null} latest as the status says */
    tell(latest) {
      say(value, latest === null ? UNKNOWN : in_words(latest));
    },
    /**
     * @param {(number | null)[]} values oldest first
     * @param {number} top what the upper edge means
     */
    draw(values, top) {
      const paths = trace(values.slice(-POINTS), top);
      attribute(area, "d", paths.area);
      attribute(line, "d", paths.line);
      attribute(picture, "aria-label", `${title}, last hour: ${summary(values, in_words)}`);
    },
  };
}

/** @param {(number | null)[]} values @param {number} top */
function trace(values, top) {
  let line = "";
  let area = "";
  let start = -1;
  const left = POINTS - values.length;
  const close = (/** @type {number} */ end) => {
    if (start >= 0) area += `L${left + end} ${HEIGHT}L${left + start} ${HEIGHT}Z`;
    start = -1;
  };
  values.forEach((value, i) => {
    if (value === null) return close(i - 1);
    const y = (HEIGHT * (1 - Math.min(1, Math.max(0, value / top)))).toFixed(1);
    const step = `${start < 0 ? "M" : "L"}${left + i} ${y}`;
    if (start < 0) start = i;
    line += step;
    area += step;
  });
  close(values.length - 1);
  return {line, area};
}

/** @param {(number | null)[]} values @param {(value: number) => string} in_words */
function summary(values, in_words) {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return "nothing known yet";
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  return `${in_words(Math.round(mean))} on average, ${in_words(Math.max(...known))} at most`;
}
