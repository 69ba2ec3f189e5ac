// @ts-check
// GPU-hours by user: a table whose bars show who had most.
import {attribute, each, h, part, say, show} from "./dom.js";
import {duration, hours, measure, visible} from "./format.js";
import {colours_of} from "./people.js";

/** @typedef {import("./model.js").Report} Report */
/** @typedef {import("./model.js").UserFigures} UserFigures */

const COLUMNS = [
  ["GPU-hours", "of whole GPUs and of shares"],
  ["busy", "utilization of the cards while leased, on average"],
  ["idle", "GPU-hours without any utilization"],
  ["jobs", "leases"],
  ["waited", "the median of the times in the queue"],
];

const body = h("tbody");
const table = h("table", {class: "usage"}, h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "User"),
    ...COLUMNS.map(([name, title]) => h("th", {scope: "col", title, class: "number"}, name)))), body);
const empty = h("div", {class: "empty"}, h("p", {}, "Nobody has had a GPU in this time."));

/** @param {Report} report */
export function show_usage(report) {
  const place = part("usage");
  if (!table.isConnected) place.replaceChildren(empty, table);
  const most = Math.max(0.001, ...report.users.map(total));
  const users = report.users.map((figures) => ({figures, share: total(figures) / most}));
  each(body, users, ({figures}) => figures.user, user_view);
  show(empty, users.length === 0);
  show(table, users.length > 0);
}

/** @param {UserFigures} figures */
function total(figures) {
  return figures.gpu_hours + figures.shared_gpu_hours;
}

/** @returns {import("./dom.js").View<{figures: UserFigures, share: number}>} */
function user_view() {
  const name = h("bdi");
  const bar = h("div", {"aria-hidden": "true"});
  const cells = COLUMNS.map(() => h("td", {class: "number"}));
  return {
    node: h("tr", {}, h("th", {scope: "row"}, name, h("div", {class: "bar-track"}, bar)), ...cells),
    update({figures, share}) {
      say(name, visible(figures.user));
      attribute(bar, "class", `bar-fill ${colours_of(figures.user)}`);
      bar.style.width = `${Math.max(0.5, 100 * share)}%`;
      say(cells[0], hours(total(figures)));
      say(cells[1], measure(figures.utilization_pct, "%"));
      say(cells[2], hours(figures.idle_gpu_hours));
      say(cells[3], `${figures.leases}`);
      say(cells[4], duration(figures.waited_s_median));
    },
  };
}
