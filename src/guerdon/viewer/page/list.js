/** The list of rows: any number of them, of which those in sight exist. */

import { h } from "./dom.js";
import { shortName } from "./filters.js";
import { signedColor } from "./plots.js";
import { inline, number } from "./text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./source.js").Row} Row */

const ROW_HEIGHT = 38; // pixels; as in the style sheet
const MAX_HEIGHT = 8_000_000; // browsers don't scroll further than about 16 million pixels
const CACHED = 3000;
const MAX_COMPONENTS = 8;

/** The texts of rows, fetched by the screenful. */
class RowCache {
  /** @type {Map<number, Row>} */ rows = new Map();
  /** @type {Set<number>} */ #pending = new Set();

  /** @param {Context} context @param {() => void} onArrival */
  constructor(context, onArrival) {
    this.table = context.table;
    this.onArrival = onArrival;
  }

  /** @param {number[]} at */
  async fetch(at) {
    const missing = at.filter((row) => !this.rows.has(row) && !this.#pending.has(row));
    if (!missing.length) return;
    missing.forEach((row) => this.#pending.add(row));
    try {
      const found = await this.table.source.rows(this.table.info.index, missing, true);
      if (this.rows.size > CACHED) this.rows.clear();
      found.forEach((row, place) => this.rows.set(missing[place], row));
      this.onArrival();
    } finally {
      missing.forEach((row) => this.#pending.delete(row));
    }
  }
}

/** The view of the rows that the filters keep. */
export class List extends HTMLElement {
  /** @type {Context | null} */ #context = null;
  /** @type {RowCache | null} */ #cache = null;
  /** @type {HTMLElement[]} */ #pool = [];
  #head = h("div.head", { role: "row" });
  #space = h("div.space", { role: "rowgroup" });
  #body = h("div.scroller", {
    role: "grid", "aria-label": "Rows", tabindex: "0",
    onkeydown: (/** @type {KeyboardEvent} */ event) => this.#press(event),
  }, h("div.top", { role: "rowgroup" }, this.#head), this.#space);
  #empty = h("p.empty", { hidden: true }, "No row matches the filters.");
  #current = -1;
  #settled = 0;
  #frame = 0;
  /** @type {string[]} */ #components = [];
  #most = 1;

  connectedCallback() {
    if (this.childElementCount) return;
    this.append(this.#body, this.#empty);
    this.#body.addEventListener("scroll", () => this.#requestFrame(), { passive: true });
    new ResizeObserver(() => this.#requestFrame()).observe(this.#body);
    this.#body.addEventListener("click", (event) => {
      const line = /** @type {Element} */ (event.target).closest("[data-place]");
      if (line) this.open(Number(line.getAttribute("data-place")));
    });
  }

  /** @param {Context} context */
  async show(context) {
    const { table, rows } = context;
    // The value of a Gate and that of its rubric are mostly the same.
    const components = table.components.filter((name) => !name.endsWith(".rubric")).slice(0, MAX_COMPONENTS);
    await table.load(["score", "status", "group", "turns", "before", "after", ...components]);
    const before = this.#context;
    // Together: the rows may be drawn at any time.
    [this.#context, this.#components] = [context, components];
    if (this.#cache?.table !== table) this.#cache = new RowCache(context, () => this.#requestFrame());
    this.#most = Math.max(1e-9, ...this.#columns.map((name) => {
      const [low, high] = table.extent(name);
      return Math.max(Math.abs(low) || 0, Math.abs(high) || 0);
    }));
    if (before?.table !== table) { // another file may have other columns
      this.#pool = [];
      this.#space.replaceChildren();
    }
    if (before?.rows !== rows) {
      const open = context.address.integer("row");
      this.#current = open === null ? -1 : rows.indexOf(open);
      this.#space.style.height = `${Math.min(rows.length * ROW_HEIGHT, MAX_HEIGHT)}px`;
      this.#body.scrollTop = 0;
      if (this.#current > 0) this.#reveal(this.#current);
    }
    this.#empty.hidden = rows.length > 0;
    this.#body.setAttribute("aria-rowcount", String(rows.length + 1));
    this.#showHead();
    this.#draw();
  }

  /** The columns that have numbers: the score, or those of a diff. */
  get #columns() {
    const { table } = /** @type {Context} */ (this.#context);
    return ["score", "before", "after"].filter((name) => table.has(name));
  }

  #showHead() {
    const { address, table } = /** @type {Context} */ (this.#context);
    const sort = address.get("sort");
    const titles = ["id", "group", ...this.#columns, "components", "turns", "text"];
    this.#head.replaceChildren(...titles.map((name) => {
      if (!table.has(name)) {
        const about = name === "components" ? this.#components.map(shortName).join(", ") : null;
        return h(`span.${name}`, { role: "columnheader", title: about }, name);
      }
      const isDown = sort === `-${name}`;
      const state = sort === name ? "ascending" : isDown ? "descending" : "none";
      const next = isDown ? null : sort === name ? `-${name}` : name;
      return h(`span.${name}`, { role: "columnheader", "aria-sort": state },
        h("button.sorter", { onclick: () => address.change({ sort: next }, { replace: true }) }, name));
    }));
  }

  #requestFrame() {
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#draw());
  }

  /** The height of the rows in sight: the titles above them stay where they are. */
  get #height() {
    return this.#body.clientHeight - this.#head.offsetHeight;
  }

  /** The first row in sight, as a fraction. */
  get #top() {
    const { rows } = /** @type {Context} */ (this.#context);
    const { scrollTop } = this.#body;
    const whole = rows.length * ROW_HEIGHT;
    if (whole <= MAX_HEIGHT) return scrollTop / ROW_HEIGHT;
    const height = this.#height;
    return ((scrollTop / (MAX_HEIGHT - height)) * (whole - height)) / ROW_HEIGHT;
  }

  #draw() {
    this.#frame = 0;
    const context = this.#context;
    if (context === null || this.#height <= 0) return;
    const { rows } = context;
    const first = Math.max(0, Math.floor(this.#top));
    const shift = (this.#top - first) * ROW_HEIGHT;
    const amount = Math.min(Math.ceil(this.#height / ROW_HEIGHT) + 1, rows.length - first);
    while (this.#pool.length < amount) this.#pool.push(this.#newLine());
    const base = this.#body.scrollTop - shift;
    this.#pool.forEach((line, offset) => {
      line.hidden = offset >= amount;
      if (offset < amount) this.#fill(line, first + offset, base + offset * ROW_HEIGHT);
    });
    const at = Array.from(rows.subarray(first, first + amount));
    clearTimeout(this.#settled);
    if (at.every((row) => this.#cache?.rows.has(row))) return;
    // While the list is scrolled fast, nothing is fetched.
    this.#settled = setTimeout(() => this.#cache?.fetch(at), 60);
  }

  #newLine() {
    const names = ["id", "group", ...this.#columns, "components", "turns", "text"];
    const line = h("div.line", { role: "row" }, ...names.map((name) => h(`span.${name}`, { role: "gridcell" })));
    this.#space.append(line);
    return line;
  }

  /** @param {HTMLElement} line @param {number} place @param {number} top */
  #fill(line, place, top) {
    const { table, rows } = /** @type {Context} */ (this.#context);
    const row = rows[place];
    const known = this.#cache?.rows.get(row);
    line.style.transform = `translateY(${top}px)`;
    line.classList.toggle("current", place === this.#current);
    const state = `${row} ${known !== undefined}`;
    if (line.getAttribute("data-state") === state && line.getAttribute("data-place") === String(place)) return;
    line.setAttribute("data-state", state);
    line.setAttribute("data-place", String(place));
    line.setAttribute("id", `row-${place}`);
    line.setAttribute("aria-rowindex", String(place + 2));
    const cells = /** @type {HTMLElement[]} */ ([...line.children]);
    const isCategory = table.columns.get("group")?.type === "category";
    const group = isCategory ? table.values("group")[table.codes("group")[row]] : known?.group;
    cells[0].replaceChildren(known ? inline(known.id ?? `line ${row + 1}`, 60) : "…");
    cells[1].replaceChildren(inline(group ?? "", 40));
    this.#columns.forEach((name, index) =>
      cells[2 + index].replaceChildren(scoreMark(table.numbers(name)[row], this.#most)));
    const [components, turns, text] = cells.slice(2 + this.#columns.length);
    components.replaceChildren(...this.#components.map((name) =>
      componentMark(shortName(name), table.numbers(name)[row])));
    turns.textContent = table.has("turns") ? String(table.numbers("turns")[row] || "") : "";
    const shown = known?.error ?? known?.text ?? "";
    text.replaceChildren(inline(shown, 160));
    text.classList.toggle("is-failed", Boolean(known?.error));
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const page = Math.floor(this.#height / ROW_HEIGHT);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      this.move(step);
    }
  }

  /**
   * Moves the current row.
   * @param {number} step
   */
  move(step) {
    const { rows } = /** @type {Context} */ (this.#context);
    if (!rows.length) return;
    this.#current = Math.min(Math.max(this.#current + step, 0), rows.length - 1);
    this.#reveal(this.#current);
    this.#draw();
    this.#body.setAttribute("aria-activedescendant", `row-${this.#current}`);
  }

  /** @param {number} place */
  #reveal(place) {
    const { rows } = /** @type {Context} */ (this.#context);
    const room = this.#height;
    const whole = rows.length * ROW_HEIGHT;
    const first = this.#top * ROW_HEIGHT;
    const [top, bottom] = [place * ROW_HEIGHT, (place + 1) * ROW_HEIGHT];
    const wanted = top < first ? top : bottom > first + room ? bottom - room : first;
    const height = Math.min(whole, MAX_HEIGHT);
    this.#body.scrollTop = whole <= MAX_HEIGHT ? wanted : (wanted / (whole - room)) * (height - room);
  }

  /** @param {number} [place] Opens the row at a place; by default the current one. */
  open(place = this.#current) {
    const { rows, address } = /** @type {Context} */ (this.#context);
    if (place < 0 || place >= rows.length) return;
    this.#current = place;
    const view = address.get("view") === "diff" ? "diff" : "rollout";
    address.change({ view, row: rows[place], group: null, step: null });
  }
}
customElements.define("g-list", List);

/**
 * A score as a bar and a number; a failure is marked as one, and a 0 is an empty bar.
 * @param {number} value
 * @param {number} most
 * @returns {HTMLElement}
 */
export function scoreMark(value, most) {
  if (value !== value) return h("span.tag.failed", {}, "failed");
  const bar = h("i", { style: { width: `${Math.min(100, (100 * Math.abs(value)) / most)}%` } });
  const kind = value === 0 ? "zero" : value < 0 ? "below" : "above";
  return h(`span.score-mark.${kind}`, {}, h("span.track", {}, bar), h("b", {}, number(value)));
}

/** @param {string} name @param {number} value */
function componentMark(name, value) {
  const isAbsent = value !== value;
  return h(isAbsent ? "i.absent" : value === 0 ? "i.zero" : "i", {
    title: `${name}: ${isAbsent ? "not evaluated" : number(value)}`,
    style: isAbsent ? {} : { background: signedColor(value, 1) },
  });
}
