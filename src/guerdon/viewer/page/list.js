/** The list of rows: any number of them, of which those in sight exist. */

import { h, replaceContent } from "./dom.js";
import { shortName } from "./filters.js";
import { reachOf, signedColor } from "./plots.js";
import { brief, inline, number, signed } from "./text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./source.js").Row} Row */
/**
 * @typedef {{kind: string, name: string, show: (row: number, known: Row | undefined) => Node | string}} Column
 *   `kind`: its class; `known`: what was fetched of the row.
 */

const ROW_HEIGHT = 38; // pixels; as in the style sheet
const MAX_HEIGHT = 8_000_000; // browsers don't scroll further than about 16 million pixels
const CACHED = 3000;
const MAX_COMPONENTS = 6;
export const RETRY = 5000; // milliseconds, while the files or the server can't be read
const WIDTHS = /** @type {Record<string, string>} */ ({
  id: "minmax(90px, 1.2fr)", group: "minmax(44px, 0.6fr)", score: "126px", signed: "72px", component: "58px",
  turns: "40px", text: "minmax(100px, 4fr)",
});

/** The view of the rows that the filters keep. */
export class List extends HTMLElement {
  /** @type {Context} */ #context = /** @type {any} */ (null); // until it is shown first
  /** @type {Column[]} */ #columns = [];
  /** @type {Map<number, Row>} */ #known = new Map();
  #isFetching = false;
  /** @type {HTMLElement[]} */ #pool = [];
  #head = h("div.head", { role: "row" });
  #space = h("div.space", { role: "rowgroup" });
  #body = h("div.scroller", {
    role: "grid", "aria-label": "Rows", tabindex: "0",
    onkeydown: (/** @type {KeyboardEvent} */ event) => this.#press(event),
  }, h("div.top", { role: "rowgroup" }, this.#head), this.#space);
  #empty = h("p.empty", { hidden: true }, "No row matches the filters.");
  #current = -1;
  /** @type {number | null} */ #open = null;
  #settled = 0;
  #frame = 0;

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
    const components = table.distinctComponents.slice(0, MAX_COMPONENTS);
    await table.load(["score", "group", "turns", "before", "after", "difference", "advantage.mean", ...components]);
    const before = this.#context;
    this.#context = context; // with its columns: the rows may be drawn at any time
    if (before?.table !== table) {
      this.#known.clear();
      this.#pool = [];
      this.#space.replaceChildren();
      this.#columns = columnsOf(table, components);
      this.style.setProperty("--columns", this.#columns.map(({ kind }) => WIDTHS[kind]).join(" "));
    }
    const open = context.address.integer("row");
    if (before?.rows !== rows) {
      const hasGrown = before?.table.info.index === table.info.index && before?.table !== table;
      const row = hasGrown ? before?.rows[this.#current] ?? null : open;
      this.#current = row === null ? -1 : rows.indexOf(row);
      this.#space.style.height = `${Math.min(rows.length * ROW_HEIGHT, MAX_HEIGHT)}px`;
      if (!hasGrown) this.#body.scrollTop = 0;
      if (!hasGrown && this.#current > 0) this.#reveal(this.#current);
    } else if (open !== null && open !== this.#open) {
      this.#current = rows.indexOf(open); // another row was opened since
      if (this.#current >= 0) this.#reveal(this.#current);
    }
    this.#open = open;
    this.#empty.hidden = rows.length > 0;
    this.#body.setAttribute("aria-rowcount", String(rows.length + 1));
    this.#showHead();
    this.#draw();
  }

  #showHead() {
    const { address, table } = this.#context;
    const sort = address.get("sort");
    replaceContent(this.#head, ...this.#columns.map(({ kind, name }) => {
      const last = name.slice(name.lastIndexOf(".") + 1);
      const isUnique = this.#columns.filter((each) => each.name.endsWith(`.${last}`)).length < 2;
      const title = inline(kind === "component" && isUnique ? last : shortName(name).replace(".mean", ""));
      if (!table.has(name)) return h(`span.${kind}`, { role: "columnheader" }, title);
      const state = sort === name ? "ascending" : sort === `-${name}` ? "descending" : "none";
      const next = { none: name, ascending: `-${name}`, descending: null }[state];
      const onclick = () => address.replace({ sort: next });
      return h(`span.${kind}`, { role: "columnheader", "aria-sort": state, title: shortName(name) },
        h("button.sorter", { "data-key": name, onclick }, title));
    }));
  }

  #requestFrame() {
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#draw());
  }

  /** The height of the rows in sight: the titles above them stay where they are. */
  get #height() {
    return this.#body.clientHeight - this.#head.offsetHeight;
  }

  /** By how many pixels the rows move for a pixel of scrolling: 1, unless there are very many. */
  get #speed() {
    const { rows } = this.#context;
    const [whole, height] = [rows.length * ROW_HEIGHT, this.#height];
    return whole <= MAX_HEIGHT ? 1 : (whole - height) / (MAX_HEIGHT - height);
  }

  /** The first row in sight, as a fraction. */
  get #top() {
    return (this.#body.scrollTop * this.#speed) / ROW_HEIGHT;
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
    const missing = [...rows.subarray(first, first + amount)].filter((row) => !this.#known.has(row));
    clearTimeout(this.#settled);
    // While the list is scrolled fast, nothing is fetched.
    if (missing.length && !this.#isFetching) this.#settled = setTimeout(() => this.#fetch(missing), 60);
  }

  /** @param {number[]} at */
  async #fetch(at) {
    const { table } = this.#context;
    this.#isFetching = true;
    const found = await table.source.rows(table.info.index, at, true).catch(() => null);
    this.#isFetching = false;
    if (found === null) return void setTimeout(() => this.#requestFrame(), RETRY);
    if (this.#context?.table === table) {
      if (this.#known.size > CACHED) this.#known.clear();
      found.forEach((row, place) => this.#known.set(at[place], row));
    }
    this.#requestFrame();
  }

  #newLine() {
    const cells = this.#columns.map(({ kind }) => h(`span.${kind}`, { role: "gridcell" }));
    const line = h("div.line", { role: "row" }, ...cells);
    this.#space.append(line);
    return line;
  }

  /** @param {HTMLElement} line @param {number} place @param {number} top */
  #fill(line, place, top) {
    const row = this.#context.rows[place];
    const known = this.#known.get(row);
    line.style.transform = `translateY(${top}px)`;
    line.classList.toggle("current", place === this.#current);
    const state = `${place} ${row} ${known !== undefined}`;
    if (line.getAttribute("data-state") === state) return;
    line.setAttribute("data-state", state);
    line.setAttribute("data-place", String(place));
    line.setAttribute("id", `row-${place}`);
    line.setAttribute("aria-rowindex", String(place + 2));
    this.#columns.forEach(({ show }, index) => line.children[index].replaceChildren(show(row, known)));
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
    const { rows } = this.#context;
    if (!rows.length) return;
    this.#current = Math.min(Math.max(this.#current + step, 0), rows.length - 1);
    this.#reveal(this.#current);
    this.#draw();
    this.#body.setAttribute("aria-activedescendant", `row-${this.#current}`);
  }

  /** @param {number} place */
  #reveal(place) {
    const [room, first] = [this.#height, this.#top * ROW_HEIGHT];
    const [top, bottom] = [place * ROW_HEIGHT, (place + 1) * ROW_HEIGHT];
    const wanted = top < first ? top : bottom > first + room ? bottom - room : first;
    this.#body.scrollTop = wanted / this.#speed;
  }

  /** @param {number} [place] Opens the row at a place; by default the current one. */
  open(place = this.#current) {
    const { rows, address } = this.#context;
    if (place < 0 || place >= rows.length) return;
    this.#current = place;
    address.change({ view: "rollout", row: rows[place], group: null, step: null });
  }
}
customElements.define("g-list", List);

/** @param {import("./table.js").Table} table @param {string[]} components @returns {Column[]} */
function columnsOf(table, components) {
  const scores = ["score", "before", "after"].filter((name) => table.has(name));
  const reach = (/** @type {string[]} */ names) => reachOf(names.flatMap((name) => table.extent(name)));
  /** @param {string} kind @param {string} name @param {Column["show"]} show @returns {Column[]} */
  const column = (kind, name, show) => (name === "text" || table.has(name) ? [{ kind, name, show }] : []);
  const most = reach(scores);
  const isCategory = table.type("group") === "category";
  return [
    ...column("id", "id", (row, known) => (known ? inline(known.id ?? `line ${row + 1}`, 60) : "…")),
    ...column("group", "group", (row, known) => inline((isCategory ? table.value("group", row) : known?.group) ?? "", 40)),
    ...scores.flatMap((name) => column("score", name, (row) => scoreMark(table.numbers(name)[row], most))),
    ...["difference", "advantage.mean"].flatMap((name) =>
      column("signed", name, (row) => numberMark(table.numbers(name)[row], reach([name]), signed))),
    ...components.flatMap((name) =>
      column("component", name, (row) => numberMark(table.numbers(name)[row], 1, brief))),
    ...column("turns", "turns", (row) => String(table.numbers("turns")[row] || "")),
    ...column("text", "text", (_, known) =>
      h(known?.error ? "span.is-failed" : "span", {}, inline(known?.error ?? known?.text ?? "", 160))),
  ];
}

/**
 * A score as a bar and a number; a failure is marked as one, and a 0 is an empty bar.
 * @param {number} value
 * @param {number} most
 * @returns {HTMLElement}
 */
function scoreMark(value, most) {
  if (value !== value) return h("span.tag.failed", {}, "failed");
  const bar = h("i", { style: { width: `${Math.min(100, (100 * Math.abs(value)) / most)}%` } });
  const kind = value === 0 ? "zero" : value < 0 ? "below" : "above";
  return h(`span.score-mark.${kind}`, {}, h("span.track", {}, bar), h("b", {}, number(value)));
}

/**
 * A number on its colour.
 * @param {number} value
 * @param {number} most
 * @param {(value: number) => string} format
 * @returns {HTMLElement}
 */
function numberMark(value, most, format) {
  if (value !== value) return h("span.value-mark.absent", { title: "not evaluated" }, "–");
  const style = { background: signedColor(value, most, 45) };
  return h(value === 0 ? "span.value-mark.zero" : "span.value-mark", { style }, format(value));
}
