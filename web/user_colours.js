// @ts-check
// Assigns each user a colour and a pattern, the same on the whole page. The patterns distinguish users for people who
// are colour-blind. style.css defines them as the classes colour-N and mark-N.

const COLOURS = 9;
const PATTERNS = 4;

/** @type {Map<string, {colour: number, pattern: number}>} */
const assigned = new Map();

/**
 * The CSS classes of an element in the user's colour and pattern.
 * @param {string} user
 */
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
  return `colour-${style.colour} mark-${style.pattern}`;
}

/**
 * The least used number, preferring the one that the hash of the name gives: so most users keep their colour when the
 * page is loaded again.
 * @param {number} count
 * @param {number} hash
 * @param {number[]} used
 */
function least_used(count, hash, used) {
  const count_uses = (/** @type {number} */ candidate) => used.filter((other) => other === candidate).length;
  const candidates = Array.from({length: count}, (_, i) => (hash + i) % count);
  return candidates.reduce((best, candidate) => (count_uses(candidate) < count_uses(best) ? candidate : best));
}
