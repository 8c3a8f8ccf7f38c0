/** The log of training runs over their steps, and the learning curves of the arena. */

import { card, choice, h, replaceContent, scrolled, shorten, tableOf } from "./dom.js";
import { CURVE_COLORS, DASHES, curves, legend, plot } from "./plots.js";
import { meanOf } from "./table.js";
import { brief, count, inline, number } from "./text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./table.js").Table} Table */
/** @typedef {import("./plots.js").Curve} Curve */

const POINTS = 120; // of a curve; more steps are averaged
const RUNS = 7; // that can be told apart
const CHANGES = 200;
const BANDS = 4; // curves of which the quartiles are drawn

/** The view of one or more logs. */
export class TrainingView extends HTMLElement {
  /** @type {Context | null} */ #context = null;
  /** @type {Map<string, HTMLElement & {plot: import("./plots.js").Plot}>} */ #cards = new Map();
  #head = h("div.training-head");
  #grid = h("div.curves");
  #changes = h("div.changes");

  connectedCallback() {
    if (!this.childElementCount) this.append(this.#head, this.#grid, this.#changes);
  }

  /** @param {Context} context */
  async show(context) {
    this.#context = context;
    const logs = context.tables.filter((table) => table.info.kind === "log");
    const wanted = context.address.parameters.getAll("runs").map(Number);
    const shown = logs.filter((table) => !wanted.length || wanted.includes(table.info.index)).slice(0, RUNS);
    const metrics = [...new Set(shown.flatMap(metricsOf))];
    await Promise.all(shown.map((table) => table.load(["step", "kind", ...metrics])));
    const changes = (await Promise.all(shown.map(changesOf))).flat();
    if (this.#context !== context) return;
    this.#showHead(logs, shown);
    this.#showCurves(shown, metrics, changes);
    this.#showChanges(changes, shown.length > 1);
  }

  /** @param {Table[]} logs @param {Table[]} shown */
  #showHead(logs, shown) {
    const toggle = (/** @type {Table} */ table) => () => {
      const next = shown.includes(table) ? shown.filter((each) => each !== table) : [...shown, table];
      this.#context?.address.change({ runs: next.map((each) => String(each.info.index)) }, { replace: true });
    };
    replaceContent(this.#head, h("fieldset.runs", {}, h("legend", {}, "runs"), ...logs.map((table) => {
      const place = shown.indexOf(table);
      return h("label", {},
        h("input", {
          type: "checkbox", checked: place >= 0, "data-key": `run ${table.info.index}`, onchange: toggle(table),
        }),
        h("i.swatch", { style: { background: place < 0 ? "transparent" : CURVE_COLORS[place] } }),
        inline(table.info.name, 60),
        h("span.muted", {}, `${count(table.rows)} records${table.info.complete ? "" : ", growing"}`));
    })));
  }

  /** @param {Table[]} shown @param {string[]} metrics @param {Change[]} changes */
  #showCurves(shown, metrics, changes) {
    const marks = changes.map(({ step, text }) => ({ at: step, title: text }));
    for (const name of this.#cards.keys()) {
      if (!metrics.includes(name)) this.#cards.delete(name);
    }
    for (const name of metrics) {
      let curve = this.#cards.get(name);
      if (curve === undefined) {
        const drawing = plot("low", () => []);
        const kind = name === "reward" ? "main" : "metric";
        const element = card(kind, shorten(titleOf(name), 60), h("span.muted.last"), drawing);
        curve = Object.assign(element, { plot: drawing });
        this.#cards.set(name, curve);
      }
      const drawn = shown.filter((table) => table.has(name)).map((table) => {
        const place = shown.indexOf(table);
        return { ...averaged(table, name), name: table.info.name, color: CURVE_COLORS[place], dash: DASHES[place] };
      });
      const last = drawn.map(({ y }) => number(y[y.length - 1])).join(" · ");
      curve.querySelector(".last")?.replaceChildren(last);
      curve.plot.draw = curves(drawn, { label: `${titleOf(name)} over steps`, xLabel: "step", marks });
    }
    const cards = metrics.map((name) => this.#cards.get(name));
    const { children } = this.#grid;
    if (cards.length !== children.length || cards.some((each, place) => children[place] !== each)) {
      this.#grid.replaceChildren(.../** @type {Node[]} */ (cards));
    }
    for (const each of cards) each?.plot.redraw();
  }

  /** @param {Change[]} changes @param {boolean} areSeveral */
  #showChanges(changes, areSeveral) {
    if (!changes.length) return this.#changes.replaceChildren();
    const lines = changes.map(({ step, run, text, who }) => h("tr", {},
      h("td", {}, count(step)), areSeveral && h("td", {}, inline(run, 40)),
      h("td", {}, inline(text, 200)), h("td", {}, inline(who ?? "", 60))));
    const titles = ["step", ...(areSeveral ? ["run"] : []), "change", "by"];
    const table = tableOf("updates", titles, titles.length, lines);
    this.#changes.replaceChildren(card("changed", "Changes of the configuration", null, table));
  }
}
customElements.define("g-training", TrainingView);

/** @typedef {{step: number, run: string, text: string, who: string | null}} Change */

/** @param {Table} table @returns {string[]} */
function metricsOf(table) {
  const names = table.named("number").filter((name) => !["step", "time", "episode"].includes(name));
  return names.sort((a, b) => rank(a) - rank(b));
}

/** @param {string} name */
function rank(name) {
  return ["reward", "components.", "weights.", "invalid."].findIndex((prefix) => name.startsWith(prefix)) >>> 0;
}

/** @param {string} name */
function titleOf(name) {
  return name.replace(/^components\./, "").replace(/^weights\./, "weight of ").replace(/^invalid\./, "failures of ");
}

/** @param {Table} table @returns {Promise<Change[]>} */
async function changesOf(table) {
  const code = table.values("kind").indexOf("config");
  if (code < 0) return [];
  const codes = table.codes("kind");
  const at = [];
  for (let row = 0; row < table.rows && at.length < CHANGES; row++) if (codes[row] === code) at.push(row);
  const rows = at.length ? await table.source.rows(table.info.index, at) : [];
  return rows.map(({ step, change = {} }) => ({
    step, run: table.info.name, who: change.who ?? null,
    text: `${change.what}: ${JSON.stringify(change.from)} → ${JSON.stringify(change.to)}`,
  }));
}

/**
 * The mean of a metric at each step, with its 95 % interval; of many steps, of some together.
 * @param {Table} table
 * @param {string} name
 * @returns {{x: number[], y: number[], low: number[], high: number[]}}
 */
export function averaged(table, name) {
  const steps = table.numbers("step");
  const values = table.numbers(name);
  let [first, last] = [Infinity, -Infinity];
  steps.forEach((step, row) => {
    if (values[row] !== values[row]) return;
    first = Math.min(first, step);
    last = Math.max(last, step);
  });
  const width = Math.max(1, Math.ceil((last - first + 1) / POINTS));
  /** @type {Map<number, number[]>} */
  const parts = new Map();
  values.forEach((value, row) => {
    if (value !== value) return;
    const part = Math.floor((steps[row] - first) / width);
    const own = parts.get(part);
    if (own) own.push(value);
    else parts.set(part, [value]);
  });
  const ordered = [...parts].sort(([a], [b]) => a - b);
  const [x, y, low, high] = [[], [], [], []].map(() => /** @type {number[]} */ ([]));
  for (const [part, own] of ordered) {
    const mean = meanOf(Float64Array.from(own), Int32Array.from(own.keys()));
    x.push(first + part * width + (width - 1) / 2);
    y.push(mean.mean);
    low.push(mean.count > 1 ? mean.low : mean.mean);
    high.push(mean.count > 1 ? mean.high : mean.mean);
  }
  return { x, y, low, high };
}

/** The view of the results of the arena: the curves of the methods in one world. */
export class ArenaView extends HTMLElement {
  /** @type {Context | null} */ #context = null;

  /** @param {Context} context */
  async show(context) {
    this.#context = context;
    const { table, address } = context;
    await table.load(["world"]);
    const worlds = table.values("world");
    const world = worlds.includes(address.get("world")) ? address.get("world") : worlds[0];
    const code = worlds.indexOf(world);
    const at = [...table.codes("world")].flatMap((each, row) => (each === code ? [row] : []));
    const rows = at.length ? await table.source.rows(table.info.index, at.slice(0, 200)) : [];
    if (this.#context !== context) return;
    const valid = rows.filter((row) => row.curve);
    valid.sort((a, b) => median(b.area) - median(a.area));
    const hidden = new Set(address.parameters.getAll("without"));
    const hasBands = valid.length - hidden.size <= BANDS;
    const drawn = valid.map((row, place) => learningCurve(row, place, hasBands));
    const toggle = (/** @type {string} */ name) => () => {
      const others = [...hidden].filter((each) => each !== name);
      address.change({ without: hidden.has(name) ? others : [...hidden, name] }, { replace: true });
    };
    const shown = drawn.filter((each) => !hidden.has(each.name));
    const label = `Learning curves in ${world}`;
    const drawing = plot("tall", curves(shown, { label, xLabel: "update", within: [-0.05, 1.05] }));
    const lines = valid.map((row, place) => {
      const numbers = [row.learning_rate, median(row.updates), median(row.area), median(row.final)];
      const name = h("button.link", {
        "aria-pressed": !hidden.has(row.method), "data-key": `method ${row.method}`, onclick: toggle(row.method),
      }, legend([drawn[place]]));
      return h("tr", {}, h("th", { scope: "row" }, name), ...numbers.map((value) => h("td.number", {}, brief(value))),
        h("td.number", {}, `${Math.round(100 * row.coverage)} %`));
    });
    const failed = rows.filter((row) => row.error).map((row) =>
      h("p.note.is-failed", {}, h("b", {}, inline(row.method)), ": ", inline(row.error, 500)));
    const titles = ["method", "rate", "updates to target", "area", "at the end", "steps with credit"];
    const open = (/** @type {string} */ name) => address.change({ world: name }, { replace: true });
    replaceContent(this,
      h("div.title", {}, h("h1", {}, "Credit arena"), choice("World", worlds, world, open)),
      h("div.arena", {},
        card("main", "Normalized return", h("span.muted", {}, "median over seeds; 1 is the optimum"), drawing),
        card("methods", "Methods", h("span.muted", {}, "medians; click to hide"),
          scrolled("wide", "Methods", tableOf("results", titles, 1, lines)))),
      ...failed);
  }
}
customElements.define("g-arena", ArenaView);

/** @param {import("./source.js").Row} row @param {number} place @param {boolean} hasBand @returns {Curve} */
function learningCurve({ method, curve }, place, hasBand) {
  const [x, low, y, high] = [0, 1, 2, 3].map((column) => curve.map((/** @type {number[]} */ each) => each[column]));
  const size = CURVE_COLORS.length;
  const dash = DASHES[(place + Math.floor(place / size)) % DASHES.length];
  return { name: method, color: CURVE_COLORS[place % size], dash, x, y, ...(hasBand ? { low, high } : {}) };
}

/** The lower median, as in the tables of the command. @param {(number | null)[]} values @returns {number} NaN if most of them are missing. */
function median(values) {
  const sorted = values.map((each) => each ?? Infinity).sort((a, b) => a - b);
  const value = sorted[Math.floor((sorted.length - 1) / 2)];
  return Number.isFinite(value) ? value : NaN;
}
