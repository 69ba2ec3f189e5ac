// @ts-check
// The table of GPU-hours by user, with bars.
import {element, h, set_attribute, set_text, set_visible, update_children} from "./dom.js";
import {duration, hours, measure, printable} from "./format.js";
import {matches_user} from "./filter.js";
import {user_classes} from "./user_colours.js";

/** @typedef {import("./model.js").Report} Report */
/** @typedef {import("./model.js").UserFigures} UserFigures */

const COLUMNS = [
  ["GPU-hours", "hours of whole GPUs and of shares of GPUs"],
  ["busy", "average utilization of the GPUs while leased"],
  ["idle h", "GPU-hours without any utilization"],
  ["jobs", "number of leases"],
  ["waited", "median time in the queue"],
];

const body = h("tbody");
const table = h("table", {class: "usage"}, h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "User"),
    ...COLUMNS.map(([name, title]) => h("th", {scope: "col", title, class: "number"}, name)))), body);
const empty = h("div", {class: "empty"}, h("p", {}, "No GPU was leased in this period."));

/** @param {Report} report */
export function show_usage(report) {
  const place = element("usage");
  if (!table.isConnected) place.replaceChildren(empty, table);
  const max_hours = report.users.reduce((most, figures) => Math.max(most, total_hours(figures)), 0.001);
  const users = report.users.filter(({user}) => matches_user(user)).map((figures) => ({figures, share: total_hours(figures) / max_hours}));
  update_children(body, users, ({figures}) => figures.user, user_view);
  set_visible(empty, users.length === 0);
  set_visible(table, users.length > 0);
}

/** @param {UserFigures} figures */
function total_hours(figures) {
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
      set_text(name, printable(figures.user));
      set_attribute(bar, "class", `bar-fill ${user_classes(figures.user)}`);
      bar.style.width = `${Math.max(0.5, 100 * share)}%`;
      set_text(cells[0], hours(total_hours(figures)));
      set_text(cells[1], measure(figures.utilization_pct, "%"));
      set_text(cells[2], hours(figures.idle_gpu_hours));
      set_text(cells[3], `${figures.leases}`);
      set_text(cells[4], duration(figures.waited_s_median));
    },
  };
}
