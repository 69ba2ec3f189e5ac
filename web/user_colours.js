// @ts-check
// A colour and a pattern for each user, the same all over the page. Both differ, so that people who see fewer colours
// can tell them apart; style.css has them as .who-N and .mark-N.

const COLOURS = 9;
const PATTERNS = 4;

/** @type {Map<string, {colour: number, pattern: number}>} */
const assigned = new Map();

/** @param {string} user the classes of what is coloured for this user */
export function user_classes(user) {
  let style = assigned.get(user);
  if (!style) {
    let hash = 7;
    for (const c of user) hash = (hash * 31 + (c.codePointAt(0) ?? 0)) % 1000003;
    const styles = [...assigned.values()];
    style = {colour: least_used(COLOURS, hash, styles.map((other) => other.colour)),
      pattern: least_used(PATTERNS, hash, styles.map((other) => other.pattern))};
    assigned.set(user, style);
  }
  return `who-${style.colour} mark-${style.pattern}`;
}

/**
 * The first that fewest have, from where the name says: so most users look tomorrow as they do today.
 * @param {number} count
 * @param {number} hash
 * @param {number[]} used
 */
function least_used(count, hash, used) {
  const count_uses = (/** @type {number} */ candidate) => used.filter((other) => other === candidate).length;
  const candidates = Array.from({length: count}, (_, i) => (hash + i) % count);
  return candidates.reduce((best, candidate) => (count_uses(candidate) < count_uses(best) ? candidate : best));
}
