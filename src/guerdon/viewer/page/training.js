/** The log of training runs over their steps, and the learning curves of the arena. */

import { card, choice, h, replaceContent, scrolled, shorten, tableOf } from "./dom.js";
import { toggled } from "./filters.js";
import { curves, lineOf, plot, styleOf } from "./plots.js";
import { failureNote } from "./status.js";
import { extent, meansBy } from "./table.js";
import { asText, brief, count, inline, number } from "./text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./table.js").Table} Table */
/** @typedef {import("./plots.js").Curve} Curve */
/** @typedef {{step: number, runs: string[], text: string, who: string | null}} Change */
/** @typedef {{steps: Float64Array, values: Float64Array, isStepped?: boolean}} Series */
/** @typedef {{element: HTMLElement, drawing: import("./plots.js").Plot, values: HTMLElement}} Metric */

const POINTS = 120; // of a curve; more steps are averaged
const CHANGES = 200; // of a run
const BANDS = 4; // curves of which the quartiles are drawn
/** The kinds of metrics in their order: how their names begin, and what their titles have in place of it. */
const KINDS = [
  ["reward", "reward"], ["components.", ""], ["weights.", "weight of "],
  ["invalid.", "share of failures of "], ["", ""],
];

/** The view of one or more logs. */
export class TrainingView extends HTMLElement {
  /** @type {Map<string, Metric>} */ #metrics = new Map();
  #head = h("fieldset.runs");
  #grid = h("div.curves");
  #changes = h("div.changes");

  connectedCallback() {
    if (!this.childElementCount) this.append(this.#head, this.#grid, this.#changes);
  }

  /** @param {Context} context */
  async show({ tables, address }) {
    const logs = tables.filter((table) => table.info.kind === "log");
    const wanted = address.parameters.getAll("runs").map(Number);
    const shown = logs.filter((table) => !wanted.length || wanted.includes(table.info.index));
    const names = [...new Set(shown.flatMap(metricsOf))];
    await Promise.all(shown.map((table) => table.load(["step", "kind", ...names])));
    const changes = await changesOf(shown);
    this.#showRuns(logs, shown, address);
    this.#showCurves(logs, shown, sortedMetrics(names, shown), changes);
    const lines = changes.map(({ step, runs, text, who }, place) =>
      [String(place + 1), count(step), inline(text, 200), inline(runs.join(", "), 200), inline(who ?? "", 60)]);
    const table = tableOf("updates", ["mark", "step", "change", "runs", "by"], 5, lines);
    replaceContent(this.#changes, lines.length > 0
      && card("changed", "Changes of the configuration", null, scrolled("wide", "Changes", table)));
  }

  /** @param {Table[]} logs @param {Table[]} shown @param {import("./address.js").Address} address */
  #showRuns(logs, shown, address) {
    const toggle = (/** @type {Table} */ table) => () => {
      const next = shown.includes(table) ? shown.filter((each) => each !== table) : [...shown, table];
      address.replace({ runs: next.map((each) => String(each.info.index)) });
    };
    replaceContent(this.#head, h("legend.hidden", {}, "runs"), ...logs.map((table, place) => h("label", {},
      h("input", {
        type: "checkbox", checked: shown.includes(table), "data-key": `run ${table.info.index}`,
        onchange: toggle(table),
      }),
      lineOf(styleOf(place)), inline(table.info.name, 60),
      h("span.muted", {}, `${count(table.rows)} records${table.info.complete ? "" : ", growing"}`))));
  }

  /** @param {Table[]} logs @param {Table[]} shown @param {string[]} names @param {Change[]} changes */
  #showCurves(logs, shown, names, changes) {
    const marks = changes.map(({ step, text, runs }, place) => ({
      at: step, sign: String(place + 1), title: runs.length < shown.length ? `${runs.join(", ")}: ${text}` : text,
    }));
    const metrics = names.map((name) => this.#metricOf(name));
    this.#grid.replaceChildren(...metrics.map((metric) => metric.element));
    metrics.forEach(({ drawing, values }, index) => {
      const name = names[index];
      const drawn = shown.filter((table) => table.has(name)).map((table) =>
        ({ ...seriesOf(table, name), name: table.info.name, ...styleOf(logs.indexOf(table)) }));
      const point = (/** @type {number | null} */ at) => values.replaceChildren(
        h("li.muted", {}, at === null ? "last" : `step ${Math.round(at)}`),
        ...drawn.map((curve) =>
          h("li", { title: curve.name }, lineOf(curve), number(valueAt(curve, Math.round(at ?? Infinity))))));
      point(null);
      drawing.show(curves(drawn, { label: `${titleOf(name)} over steps`, xLabel: "step", marks, point }));
    });
  }

  /** @param {string} name @returns {Metric} */
  #metricOf(name) {
    let metric = this.#metrics.get(name);
    if (metric === undefined) {
      const [drawing, values] = [plot("low"), h("ul.legend")];
      const kind = name === "reward" ? "main" : "metric";
      metric = { drawing, values, element: card(kind, shorten(titleOf(name), 60), values, drawing) };
      this.#metrics.set(name, metric);
    }
    return metric;
  }
}
customElements.define("g-training", TrainingView);

/** @param {Table} table @returns {string[]} */
function metricsOf(table) {
  return table.named("number").filter((name) => !["step", "time", "episode"].includes(name));
}

/** @param {string[]} names @param {Table[]} tables @returns {string[]} By kind; what doesn't change is last. */
function sortedMetrics(names, tables) {
  const isConstant = (/** @type {string} */ name) =>
    tables.every((table) => !table.has(name) || table.extent(name)[0] === table.extent(name)[1]);
  const ranks = new Map(names.map((name) => [name, rank(name) + Number(isConstant(name)) / 2]));
  return names.sort((a, b) => (ranks.get(a) ?? 0) - (ranks.get(b) ?? 0));
}

/** @param {string} name */
function rank(name) {
  return KINDS.findIndex(([beginning]) => name.startsWith(beginning));
}

/** @param {string} name */
function titleOf(name) {
  const [beginning, words] = KINDS[rank(name)];
  return words + name.slice(beginning.length);
}

/**
 * The value of the last step with one, up to some step: the mean of its records, or the last weight.
 * @param {Series} series
 * @param {number} at
 * @returns {number} NaN before the first value.
 */
function valueAt({ steps, values, isStepped }, at) {
  let [last, sum, size] = [-Infinity, 0, 0];
  for (const [row, step] of steps.entries()) {
    const value = values[row];
    if (value !== value || !(step >= last && step <= at)) continue;
    if (step > last || isStepped) [last, sum, size] = [step, 0, 0];
    sum += value;
    size++;
  }
  return sum / size;
}

/** @param {Table[]} tables @returns {Promise<Change[]>} The same change of several runs is one. */
async function changesOf(tables) {
  /** @type {Map<string, Change>} */
  const changes = new Map();
  for (const table of tables) {
    const at = [...table.all].filter((row) => table.value("kind", row) === "config").slice(0, CHANGES);
    const rows = at.length ? await table.source.rows(table.info.index, at) : [];
    for (const { step, change = {} } of rows) {
      if (!Number.isFinite(step)) continue;
      const text = `${change.what}: ${asText(change.from)} → ${asText(change.to)}`;
      const found = changes.get(`${step} ${text}`);
      if (found) found.runs.push(table.info.name);
      else changes.set(`${step} ${text}`, { step, text, who: change.who ?? null, runs: [table.info.name] });
    }
  }
  return [...changes.values()].sort((a, b) => a.step - b.step);
}

/** @param {Table} table @param {string} name */
function seriesOf(table, name) {
  const steps = table.numbers("step");
  let values = table.numbers(name);
  if (name.startsWith("weights.")) return { steps, values, ...steppedOf(steps, values) };
  if (name.startsWith("invalid.")) {
    // A step without an entry did not fail.
    const [kinds, step] = [table.codes("kind"), table.values("kind").indexOf("step")];
    values = values.map((value, row) => (kinds[row] === step ? Number(value > 0) : NaN));
  }
  return { steps, values, ...averaged(steps, values) };
}

/** @param {Float64Array} steps @param {Float64Array} values @returns {Int32Array} The rows with both. */
function rowsOf(steps, values) {
  return Int32Array.from(values.keys()).filter((row) => values[row] === values[row] && steps[row] === steps[row]);
}

/** @param {Float64Array} steps @param {Float64Array} values A weight. @returns {{x: number[], y: number[], isStepped: true}} */
function steppedOf(steps, values) {
  const rows = [...rowsOf(steps, values)];
  const changed = rows.filter((row, place) => values[row] !== values[rows[place - 1]] || place === rows.length - 1);
  return { x: changed.map((row) => steps[row]), y: changed.map((row) => values[row]), isStepped: true };
}

/**
 * The mean of a metric at each step, with its 95 % interval; of many steps, of some together.
 * @param {Float64Array} steps
 * @param {Float64Array} values
 * @returns {{x: number[], y: number[], low: number[], high: number[]}}
 */
function averaged(steps, values) {
  const rows = rowsOf(steps, values);
  const [first, last] = extent(Float64Array.from(rows, (row) => steps[row]));
  const width = Math.max(1, Math.ceil((last - first + 1) / POINTS));
  const codes = Int32Array.from(steps, (step) => Math.floor((step - first) / width));
  const parts = meansBy(codes, Math.min(last - first + 1, POINTS), values, rows)
    .map((part, place) => ({ ...part, x: first + place * width + (width - 1) / 2 })).filter((part) => part.rows > 0);
  return {
    x: parts.map(({ x }) => x), y: parts.map(({ mean }) => mean),
    low: parts.map(({ mean, half }) => mean - (half || 0)), high: parts.map(({ mean, half }) => mean + (half || 0)),
  };
}

/** The view of the results of the arena: the curves of the methods in one world. */
export class ArenaView extends HTMLElement {
  /** @type {Context} */ #context = /** @type {any} */ (null); // until it is shown first

  /** @param {Context} context */
  async show(context) {
    this.#context = context;
    const { table, address } = context;
    await table.load(["world"]);
    const worlds = table.values("world");
    const world = worlds.includes(address.get("world")) ? address.get("world") : worlds[0];
    const at = [...table.all].filter((row) => table.value("world", row) === world);
    const rows = at.length ? await table.source.rows(table.info.index, at.slice(0, 200)) : [];
    if (this.#context !== context) return;
    const valid = rows.filter((row) => row.curve);
    valid.sort((a, b) => median(b.area) - median(a.area));
    const hidden = address.parameters.getAll("without");
    const hasBands = valid.length - hidden.length <= BANDS;
    const drawn = valid.map((row, place) => learningCurve(row, place, hasBands));
    const toggle = (/** @type {string} */ name) => () => address.replace({ without: toggled(hidden, name, true) });
    const shown = drawn.filter((each) => !hidden.includes(each.name));
    const label = `Learning curves in ${world}`;
    const drawing = plot("tall");
    drawing.show(curves(shown, { label, xLabel: "update", within: [-0.05, 1.05] }));
    const lines = valid.map((row, place) => {
      const numbers = [row.learning_rate, median(row.updates), median(row.area), median(row.final)].map(brief);
      const name = h("button.link", {
        "aria-pressed": !hidden.includes(row.method), "data-key": `method ${row.method}`, onclick: toggle(row.method),
      }, lineOf(drawn[place]), inline(row.method));
      return [name, ...numbers, `${Math.round(100 * row.coverage)} %`];
    });
    const failed = rows.filter((row) => row.error).map((row) => failureNote(row.error, row.method));
    const titles = ["method", "rate", "updates to target", "area", "at the end", "steps with credit"];
    const open = (/** @type {string} */ name) => address.replace({ world: name });
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
  return { name: method, ...styleOf(place), x, y, ...(hasBand ? { low, high } : {}) };
}

/** The lower median, as in the tables of the command. @param {(number | null)[]} [values] @returns {number} NaN if most of them are missing. */
function median(values = []) {
  const sorted = values.map((each) => each ?? Infinity).sort((a, b) => a - b);
  const value = sorted[Math.floor((sorted.length - 1) / 2)];
  return Number.isFinite(value) ? value : NaN;
}
