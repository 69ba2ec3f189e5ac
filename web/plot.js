// @ts-check
// A small plot of the last hour: a line with a filled area below it, and gaps where values are unknown. The vertical axis
// goes from 0 to 100 %, with a line at 50 %.
import {h, set_attribute, set_text, svg} from "./dom.js";
import {UNKNOWN} from "./format.js";

const POINTS = 360;
const HEIGHT = 40;

/**
 * @param {string} title
 * @param {string} kind a CSS class
 * @param {(value: number) => string} format_value
 */
export function plot(title, kind, format_value) {
  const middle = svg("path", {class: "middle", d: `M0 ${HEIGHT / 2}H${POINTS}`, "vector-effect": "non-scaling-stroke"});
  const area = svg("path", {class: "area"});
  const line = svg("path", {class: "line", "vector-effect": "non-scaling-stroke"});
  const chart = svg("svg", {viewBox: `0 -1 ${POINTS} ${HEIGHT + 2}`, preserveAspectRatio: "none", role: "img"},
      middle, area, line);
  const value = h("span", {class: "value"});
  const axis = (/** @type {string} */ name, /** @type {string[]} */ ...ends) =>
    h("div", {class: `axis-${name}`, "aria-hidden": "true"}, ...ends.map((end) => h("span", {}, end)));
  const node = h("div", {class: `plot ${kind}`}, h("div", {class: "caption"}, h("span", {}, title), value),
      h("div", {class: "framed"}, axis("y", "100 %", "0"), chart), axis("x", "1 h ago", "now"));
  return {
    node,
    /** @param {number | null} latest the value of the newest status */
    set_value(latest) {
      set_text(value, latest === null ? UNKNOWN : format_value(latest));
    },
    /**
     * @param {(number | null)[]} values oldest first
     * @param {number} max_value the value at the upper edge
     */
    draw(values, max_value) {
      const paths = make_paths(values.slice(-POINTS), max_value);
      set_attribute(area, "d", paths.area);
      set_attribute(line, "d", paths.line);
      set_attribute(chart, "aria-label", `${title}, last hour: ${summary(values, format_value)}`);
    },
  };
}

/** @param {(number | null)[]} values @param {number} max_value */
function make_paths(values, max_value) {
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
    const y = (HEIGHT * (1 - Math.min(1, Math.max(0, value / max_value)))).toFixed(1);
    const step = `${start < 0 ? "M" : "L"}${left + i} ${y}`;
    if (start < 0) start = i;
    line += step;
    area += step;
  });
  close(values.length - 1);
  return {line, area};
}

/** @param {(number | null)[]} values @param {(value: number) => string} format_value */
function summary(values, format_value) {
  const known_values = values.filter((value) => value !== null);
  if (known_values.length === 0) return "no data yet";
  const mean = known_values.reduce((sum, value) => sum + value, 0) / known_values.length;
  return `${format_value(Math.round(mean))} on average, ${format_value(known_values.reduce((most, value) => Math.max(most, value)))} at most`;
}
