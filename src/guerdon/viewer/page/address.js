/** The state of the page: all of it is in the hash of its address. */

import { toggled } from "./filters.js";

/** @typedef {Record<string, string | number | string[] | null>} Changes */

/** Prefix of the parameters that are filters. */
const FILTER = "f.";

/** Reads and changes the state; announces each change as an event `change`. */
export class Address extends EventTarget {
  constructor() {
    super();
    this.parameters = new URLSearchParams(location.hash.slice(1));
    window.addEventListener("hashchange", () => this.#read());
  }

  #read() {
    if (`#${this.parameters}` === location.hash || (!location.hash && !`${this.parameters}`)) return;
    this.parameters = new URLSearchParams(location.hash.slice(1));
    this.dispatchEvent(new Event("change"));
  }

  /**
   * @param {string} name
   * @param {string} [otherwise]
   * @returns {string}
   */
  get(name, otherwise = "") {
    return this.parameters.get(name) ?? otherwise;
  }

  /**
   * @param {string} name
   * @returns {number | null} Null if it is absent or not a whole number.
   */
  integer(name) {
    const text = this.parameters.get(name);
    return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null;
  }

  /** @returns {Map<string, string[]>} The filters by column. */
  get filters() {
    const names = [...this.parameters.keys()].filter((key) => key.startsWith(FILTER));
    return new Map(names.map((key) => [key.slice(FILTER.length), this.parameters.getAll(key)]));
  }

  /**
   * Changes parameters; null removes one. Filters are named by `filterKey`.
   * @param {Changes} changes
   * @param {"pushState" | "replaceState"} [how] How the browser records it.
   */
  change(changes, how = "pushState") {
    const next = this.link(changes);
    if (next === `#${this.parameters}`) return;
    this.parameters = new URLSearchParams(next.slice(1));
    history[how](null, "", next);
    this.dispatchEvent(new Event("change"));
  }

  /** @param {string} column @param {string} clicked @param {boolean} isAdded As of `toggled`. */
  filter(column, clicked, isAdded) {
    this.change({ [filterKey(column)]: toggled(this.filters.get(column), clicked, isAdded) });
  }

  /** @param {Changes} changes As of `change`; "back" skips the state before it. */
  replace(changes) {
    this.change(changes, "replaceState");
  }

  /**
   * The address after a change, for links.
   * @param {Changes} changes
   * @returns {string}
   */
  link(changes) {
    const next = new URLSearchParams(this.parameters);
    for (const [name, value] of Object.entries(changes)) {
      next.delete(name);
      if (value === null || value === "") continue;
      for (const each of Array.isArray(value) ? value : [value]) next.append(name, String(each));
    }
    return `#${next}`;
  }
}

/** @param {string} column @returns {string} The parameter that filters a column. */
export function filterKey(column) {
  return FILTER + column;
}
