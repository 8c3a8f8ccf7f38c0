/** Which rows are shown: filters by column, as they are written in the address. */

/** @typedef {import("./table.js").Table} Table */

/** A filter's value for rows without a value in the column. */
export const NONE = "none";
const INTERVAL = /^([[(])([^,]*),([^,]*)([\])])$/;

/**
 * Whether a row matches each of the filters. The columns must be loaded.
 *
 * A filter is a list of alternatives: `none`, an interval of numbers such as `[0,0.5)`, a value of a
 * category after an equals sign, such as `=failed`, or a part of such values, such as `~format` for
 * what `partsOf` finds in them.
 * @param {Table} table
 * @param {Map<string, string[]>} filters
 * @returns {((row: number) => boolean)[]}
 */
export function testsOf(table, filters) {
  const known = [...filters].filter(([name]) => (table.type(name) ?? "text") !== "text");
  return known.map(([name, alternatives]) => {
    const keepsNone = alternatives.includes(NONE);
    if (table.type(name) === "category") {
      const [codes, kept] = [table.codes(name), codesOf(table, name, alternatives)];
      return (row) => (codes[row] < 0 ? keepsNone : kept.has(codes[row]));
    }
    const numbers = table.numbers(name);
    const intervals = alternatives.map(intervalOf).filter((each) => each !== null);
    return (row) => {
      const value = numbers[row];
      return value !== value ? keepsNone : intervals.some((each) => isIn(value, each));
    };
  });
}

/** @typedef {{low: number, high: number, fromLow: boolean, toHigh: boolean}} Interval */

/** @param {string} text @returns {Interval | null} */
function intervalOf(text) {
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
  return new Set(table.values(name).flatMap((value, code) => (isWanted(value) ? [code] : [])));
}

/** @param {string} value Paths of gates, for example. @returns {string[]} Each of them. */
export function partsOf(value) {
  return value.split(", ");
}

/**
 * The alternatives of a column after one of them was clicked: it is added, or removed.
 * @param {string[] | undefined} alternatives
 * @param {string} clicked
 * @param {boolean} isAdded Whether the other alternatives stay.
 * @returns {string[]}
 */
export function toggled(alternatives = [], clicked, isAdded) {
  const others = alternatives.filter((each) => each !== clicked);
  const kept = isAdded ? others : [];
  return others.length < alternatives.length ? kept : [...kept, clicked];
}

/**
 * A filter in words.
 * @param {string} name
 * @param {string[]} alternatives
 * @returns {string}
 */
export function inWords(name, alternatives) {
  const parts = alternatives.map((each) => {
    if (each === NONE) return name === "score" ? "failed" : "none";
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
