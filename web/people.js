// @ts-check
// A colour and a pattern for each user, the same all over the page. Both differ, so that people who see fewer colours
// can tell them apart; style.css has them as .who-N and .mark-N.

const COLOURS = 9;
const PATTERNS = 4;

/** @type {Map<string, {colour: number, pattern: number}>} */
const known = new Map();

/** @param {string} user the classes of what is coloured for this user */
export function colours_of(user) {
  let it = known.get(user);
  if (!it) {
    let hash = 7;
    for (const c of user) hash = (hash * 31 + (c.codePointAt(0) ?? 0)) % 1000003;
    const others = [...known.values()];
    it = {colour: least_used(COLOURS, hash, others.map((other) => other.colour)),
      pattern: least_used(PATTERNS, hash, others.map((other) => other.pattern))};
    known.set(user, it);
  }
  return `who-${it.colour} mark-${it.pattern}`;
}

/**
 * The first that fewest have, from where the name says: so most users look tomorrow as they do today.
 * @param {number} count
 * @param {number} hash
 * @param {number[]} used
 */
function least_used(count, hash, used) {
  const uses = (/** @type {number} */ one) => used.filter((other) => other === one).length;
  const candidates = Array.from({length: count}, (_, i) => (hash + i) % count);
  return candidates.reduce((best, one) => (uses(one) < uses(best) ? one : best));
}
