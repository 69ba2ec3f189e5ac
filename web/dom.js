// @ts-check
// Creates and changes nodes. No function accepts markup: text of users only ever becomes a text node.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | null | undefined} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined>} Attributes */

/**
 * Creates an HTML element.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) set_attribute(node, name, value);
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

/**
 * Creates an SVG element.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) set_attribute(node, name, value);
  for (const child of children) if (child) node.append(child);
  return node;
}

/**
 * Sets an attribute if its value differs; null and false remove it.
 * @param {Element} node
 * @param {string} name
 * @param {string | number | boolean | null | undefined} value
 */
export function set_attribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/**
 * Sets the text of a node if it differs. Unchanged text is not painted again, and keeps the user's selection.
 * @param {Element} node
 * @param {string} text
 */
export function set_text(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * @param {HTMLElement} node
 * @param {boolean} shown
 */
export function set_visible(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

/**
 * The element of index.html with this id. Throws if there is none.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function element(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`index.html has no #${id}`);
  return node;
}

/**
 * @template T
 * @typedef {{node: HTMLElement, update: (item: T, index: number) => void}} View
 */

/** @type {WeakMap<Node, Map<string, View<any>>>} */
const views_by_parent = new WeakMap();

/**
 * Makes the children of `parent` match `items`. The node of each key is created once, updated in place, and moved only
 * if the order has changed, so that focus, selection and scroll position are kept.
 * @template T
 * @param {HTMLElement} parent
 * @param {T[]} items
 * @param {(item: T) => string} key
 * @param {() => View<T>} make
 */
export function update_children(parent, items, key, make) {
  let views = views_by_parent.get(parent);
  if (!views) {
    parent.replaceChildren();
    views_by_parent.set(parent, (views = new Map()));
  }
  const keys = new Set(items.map(key));
  for (const [old, view] of views) {
    if (keys.has(old)) continue;
    move_focus_out(view.node);
    view.node.remove();
    views.delete(old);
  }
  let next = parent.firstElementChild;
  const seen_keys = new Set();
  items.forEach((item, index) => {
    const name = key(item);
    if (seen_keys.has(name)) return;
    seen_keys.add(name);
    let view = views.get(name);
    if (!view) views.set(name, (view = make()));
    view.update(item, index);
    if (view.node === next) next = next.nextElementSibling;
    else parent.insertBefore(view.node, next);
  });
}

/**
 * If a node that is removed has the focus, moves the focus to its section. Otherwise the browser would move it to the
 * start of the page.
 * @param {HTMLElement} node
 */
function move_focus_out(node) {
  if (!node.contains(document.activeElement)) return;
  const section = node.parentElement?.closest("section[tabindex]");
  if (section instanceof HTMLElement) section.focus({preventScroll: true});
}
