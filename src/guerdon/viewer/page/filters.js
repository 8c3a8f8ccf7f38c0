/** Which rows are shown: filters by column, as they are written in the address. */

/** @typedef {import("./table.js").Table} Table */

/** A filter's value for rows without a value in the column. */
export const NONE = "none";
const INTERVAL = /^([[(])([^,]*),([^,]*)([\])])$/;

/**
 * Marks the rows that match all filters. The columns must be loaded.
 *
 * A filter is a list of alternatives: `none`, an interval of numbers such as `[0,0.5)`, a value of a
 * category after an equals sign, such as `=failed`, or a part of such values, such as `~format` for
 * what `partsOf` finds in them.
 * @param {Table} table
 * @param {Map<string, string[]>} filters
 * @returns {Uint8Array} 1 for each row that matches.
 */
export function matching(table, filters) {
  const mask = new Uint8Array(table.rows).fill(1);
  for (const [name, alternatives] of filters) {
    const type = table.columns.get(name)?.type;
    if (type === "number") keepNumbers(mask, table.numbers(name), alternatives);
    if (type === "category") keepCodes(mask, table.codes(name), codesOf(table, name, alternatives));
  }
  return mask;
}

/** @param {Uint8Array} mask @param {Float64Array} numbers @param {string[]} alternatives */
function keepNumbers(mask, numbers, alternatives) {
  const intervals = alternatives.map((each) => intervalOf(each)).filter((each) => each !== null);
  const keepsNone = alternatives.includes(NONE);
  for (let row = 0; row < mask.length; row++) {
    if (mask[row] === 0) continue;
    const value = numbers[row];
    if (!(value !== value ? keepsNone : intervals.some((each) => isIn(value, each)))) mask[row] = 0;
  }
}

/** @typedef {{low: number, high: number, fromLow: boolean, toHigh: boolean}} Interval */

/** @param {string} text @returns {Interval | null} */
export function intervalOf(text) {
  const found = INTERVAL.exec(text);
  if (found === null) return null;
  const [, opening, low, high, closing] = found;
  return {
    low: low === "" ? -Infinity : Number(low),
    high: high === "" ? Infinity : Number(high),
    fromLow: opening === "[",
    toHigh: closing === "]",
  };
}

/** @param {number} value @param {Interval} interval */
function isIn(value, { low, high, fromLow, toHigh }) {
  return (fromLow ? value >= low : value > low) && (toHigh ? value <= high : value < high);
}

/** @param {Table} table @param {string} name @param {string[]} alternatives @returns {Set<number>} */
function codesOf(table, name, alternatives) {
  const wanted = new Set(alternatives);
  const isWanted = (/** @type {string} */ value) =>
    wanted.has(`=${value}`) || partsOf(value).some((part) => wanted.has(`~${part}`));
  const codes = table.values(name).flatMap((value, code) => (isWanted(value) ? [code] : []));
  return new Set(wanted.has(NONE) ? [...codes, -1] : codes);
}

/** @param {string} value Paths of gates, for example. @returns {string[]} Each of them. */
export function partsOf(value) {
  return value.split(", ");
}

/** @param {Uint8Array} mask @param {Int32Array} codes @param {Set<number>} kept */
function keepCodes(mask, codes, kept) {
  for (let row = 0; row < mask.length; row++) {
    if (mask[row] === 1 && !kept.has(codes[row])) mask[row] = 0;
  }
}

/**
 * The rows of an order that a mask keeps.
 * @param {Int32Array} order
 * @param {Uint8Array} mask
 * @returns {Int32Array}
 */
export function kept(order, mask) {
  const rows = new Int32Array(order.length);
  let size = 0;
  for (const row of order) if (mask[row] === 1) rows[size++] = row;
  return rows.slice(0, size);
}

/**
 * The alternatives of a column after one of them was clicked: it is added, or removed.
 * @param {string[] | undefined} alternatives
 * @param {string} clicked
 * @param {boolean} isAdded Whether the other alternatives stay.
 * @returns {string[] | null} Null if no alternative is left.
 */
export function toggled(alternatives = [], clicked, isAdded) {
  const others = alternatives.filter((each) => each !== clicked);
  if (others.length < alternatives.length) return isAdded && others.length ? others : null;
  return isAdded ? [...others, clicked] : [clicked];
}

/**
 * A filter in words.
 * @param {string} name
 * @param {string[]} alternatives
 * @returns {string}
 */
export function inWords(name, alternatives) {
  const parts = alternatives.map((each) => {
    if (each === NONE) return "none";
    if (/^[=~]/.test(each)) return each.slice(1);
    const interval = intervalOf(each);
    if (interval === null) return each;
    const { low, high, fromLow, toHigh } = interval;
    if (low === high) return String(low);
    if (high === Infinity) return `${fromLow ? "≥" : ">"} ${low}`;
    if (low === -Infinity) return `${toHigh ? "≤" : "<"} ${high}`;
    return `${low} ${fromLow ? "≤" : "<"} … ${toHigh ? "≤" : "<"} ${high}`;
  });
  return `${shortName(name)}: ${parts.join(" or ")}`;
}

/** @param {string} name A column's name. @returns {string} Without the prefix of components. */
export function shortName(name) {
  return name.replace(/^components\./, "");
}
