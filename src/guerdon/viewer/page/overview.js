/** The overview of a file: distributions, means, correlations; all of it filters the rows below. */

import { filterKey } from "./address.js";
import { card, choice, empty, figures, h, replaceContent, tableOf, useArrowKeys } from "./dom.js";
import { NONE, partsOf, shortName } from "./filters.js";
import { histogram, plot, scatter, signedColor } from "./plots.js";
import { correlation, meanOf, meansBy } from "./table.js";
import { count, inline, number } from "./text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./dom.js").Child} Child */
/** @typedef {import("./table.js").Mean} Mean */
/**
 * @typedef {{name: string, text: string, mean: Mean, isChosen: boolean,
 *   onclick: (event: MouseEvent) => void}} Entry A line of a table of means.
 */

const MAX_CORRELATED = 12;
const MAX_PARTS = 100;
const MAX_NAMED = 30; // values of a category that can be an axis

/** A titled part of the overview, with a plot if it has a shape. Its class sets its height: nothing moves. */
class Part {
  /** @param {string} name @param {string} title @param {string} [shape] */
  constructor(name, title, shape) {
    this.controls = h("div.controls");
    this.plot = plot(shape ?? "none");
    this.body = h("div.body", {}, shape ? this.plot : null);
    this.element = card(name, title, this.controls, this.body);
  }
}

/** The view of a file of result rows. */
export class Overview extends HTMLElement {
  #parts = {
    score: new Part("score", "Scores", "tall"),
    lengths: new Part("lengths", "Distribution", "tall"),
    figures: new Part("figures", "In numbers"),
    components: new Part("components", "Means of components"),
    parts: new Part("parts", "By column"),
    correlations: new Part("correlations", "Correlations"),
    scatter: new Part("scatter", "Two columns, drag to filter", "square"),
  };
  /** @type {Context} */ #context = /** @type {any} */ (null); // until it is shown first
  #later = 0;

  connectedCallback() {
    if (!this.childElementCount) this.append(...Object.values(this.#parts).map((part) => part.element));
  }

  /** @param {Context} context */
  async show(context) {
    const { table, address } = context;
    this.#context = context;
    const names = table.named("number");
    const score = table.has("score") ? "score" : names[0];
    const lengths = names.filter((name) => ["turns", "characters"].includes(name));
    await table.load([score, "status", "stopped_by", "failure", ...lengths, ...table.components]);
    const named = table.named("category").filter((name) => table.values(name).length <= MAX_NAMED);
    const known = (/** @type {string} */ parameter, axes = names) => axes.find((name) => name === address.get(parameter));
    const axes = [...names, ...named];
    const length = lengths.find((name) => table.extent(name)[0] < table.extent(name)[1]) ?? names[0];
    const chosen = { column: known("column") ?? length, x: known("x", axes) ?? length, y: known("y", axes) ?? score };
    const by = address.get("by") || this.#defaultBy(context);
    await table.load([...Object.values(chosen), by]);
    if (this.#context !== context) return;
    this.#showFigures(context);
    this.#showHistogram(context, "score", score);
    this.#showHistogram(context, "lengths", chosen.column);
    this.#choose("lengths", [["Column of the distribution", names, chosen.column, "column"]]);
    this.#showComponents(context);
    this.#showParts(context, by);
    clearTimeout(this.#later);
    this.#later = setTimeout(() => {
      this.#showCorrelations(context);
      this.#later = setTimeout(() => this.#showScatter(context, axes, chosen));
    });
  }

  /** @param {Context} context */
  #defaultBy({ table }) {
    const names = table.named("category").filter((name) => !["status", "failure", "stopped_by"].includes(name));
    const hasFew = (/** @type {string} */ name) => table.values(name).length > 1 && table.values(name).length <= 50;
    return names.find(hasFew) ?? names[0] ?? "status";
  }

  /**
   * Shows the drop-down lists of a part.
   * @param {"lengths" | "parts" | "scatter"} part
   * @param {[label: string, names: string[], chosen: string, parameter: string][]} lists
   */
  #choose(part, lists) {
    replaceContent(this.#parts[part].controls, ...lists.map(([label, names, chosen, parameter]) =>
      choice(label, names, chosen, (name) => this.#context.address.replace({ [parameter]: name }))));
  }

  /** @param {Context} context */
  #showFigures(context) {
    const { table, rows } = context;
    const mean = table.has("score") ? meanOf(table.numbers("score"), rows) : null;
    const failed = mean ? rows.length - mean.count : 0;
    const share = (/** @type {number} */ part) =>
      rows.length ? `${((100 * part) / rows.length).toFixed(1)} %` : "–";
    const { without_rollout: without = 0, duplicates = 0, duplicate_rollouts: doubled = 0 } = table.info;
    replaceContent(this.#parts.figures.body,
      figures([
        ["rows", count(rows.length), `of ${count(table.rows)}`],
        mean && ["mean score", number(mean.mean), mean.count > 1 ? `± ${number(mean.half)}` : ""],
        mean && ["scored 0", count(mean.zeros), share(mean.zeros)],
        ["failed", h(failed ? "span.is-failed" : "span", {}, count(failed)), share(failed)],
        without > 0 && ["without rollout", count(without), "in the file"],
        duplicates > 0 && ["ids given twice", count(duplicates), "in the file"],
        doubled > 0 && ["ids given twice", count(doubled), "in the rollouts"]]),
      this.#meters(context, "failure", "failed with"),
      this.#meters(context, "stopped_by", "stopped by"));
  }

  /** @param {Context} context @param {string} name A column with the reasons why rows have no score. @param {string} title */
  #meters({ table, rows, address }, name, title) {
    if (!table.has(name)) return null;
    const values = table.values(name);
    const [part, whole] = [rows, table.all].map((each) => meansBy(table.codes(name), values.length, null, each));
    /** @type {Map<string, {part: number, whole: number}>} */
    const amounts = new Map();
    values.forEach((value, code) => {
      for (const each of partsOf(value)) {
        const before = amounts.get(each) ?? { part: 0, whole: 0 };
        amounts.set(each, { part: before.part + part[code].rows, whole: before.whole + whole[code].rows });
      }
    });
    const ordered = [...amounts].sort(([, a], [, b]) => b.whole - a.whole);
    const lines = ordered.map(([value, { part, whole }]) => h("li", {}, h(`button.meter.${name}`, {
      "data-key": `${name} ${value}`, title: `${value}: ${count(part)} of ${count(whole)} rows`,
      "aria-pressed": address.filters.get(name)?.includes(`~${value}`) ?? false,
      onclick: (/** @type {MouseEvent} */ event) => address.filter(name, `~${value}`, event.shiftKey),
    },
    h("span.fill", { style: { width: `${(100 * part) / ordered[0][1].whole}%` } }),
    h("span.name", {}, inline(value)), h("span.amount", {}, count(part)))));
    return lines.length > 0 && h("div", {}, h("h3", {}, title), h("ul.meters", {}, ...lines));
  }

  /** @param {Context} context @param {"score" | "lengths"} which @param {string} name */
  #showHistogram({ table, rows, address }, which, name) {
    this.#parts[which].plot.show(histogram(table.binned(name), rows, {
      name: shortName(name), none: name === "score" ? "failed" : "none", chosen: address.filters.get(name),
      choose: (text, isAdded) => address.filter(name, text, isAdded),
    }));
  }

  /** @param {Context} context */
  #showComponents({ table, rows, address }) {
    const score = table.has("score") ? table.numbers("score") : null;
    // As in the command's table: the components of a row that failed don't count.
    const valid = score ? rows.filter((row) => score[row] === score[row]) : rows;
    const entries = table.components.map((name) => ({
      name: shortName(name), text: shortName(name), mean: meanOf(table.numbers(name), valid),
      isChosen: address.get("column") === name,
      onclick: () => address.replace({ column: name }),
    }));
    const lines = meanLines(entries, ({ mean }) => [count(mean.count)]);
    const titles = ["component", "mean", intervalTitle(), "rows"];
    replaceContent(this.#parts.components.body, tableOf("means", titles, 1, lines, "The rows have no components."));
  }

  /** @param {Context} context @param {string} by */
  #showParts({ table, rows, address }, by) {
    const names = table.named("category");
    this.#choose("parts", names.length ? [["Column of the table", names, by, "by"]] : []);
    const { body } = this.#parts.parts;
    if (!names.includes(by)) return replaceContent(body, empty("There is no column to break down by."));
    const isByMean = address.get("order") === "mean";
    const score = table.has("score") ? table.numbers("score") : null;
    const [values, ranks] = [table.values(by), table.ranks(by)];
    // The last part is of the rows without a value.
    const codes = table.once(`parts ${by}`, () => table.codes(by).map((code) => (code < 0 ? values.length : code)));
    const parts = meansBy(codes, values.length + 1, score, rows)
      .map((mean, code) => ({ value: values[code], mean, rank: ranks[code] ?? Infinity })).filter(({ mean }) => mean.rows > 0)
      .sort((a, b) => (isByMean ? (b.mean.mean || 0) - (a.mean.mean || 0) : b.mean.rows - a.mean.rows)
        || a.rank - b.rank);
    const entries = parts.slice(0, MAX_PARTS).map(({ value, mean }) => {
      const filter = value === undefined ? NONE : `=${value}`;
      return {
        name: `part ${filter}`, text: value ?? "(none)", mean,
        isChosen: address.filters.get(by)?.includes(filter) ?? false,
        onclick: (/** @type {MouseEvent} */ event) => address.filter(by, filter, event.shiftKey),
      };
    });
    const sorter = (/** @type {string} */ title, /** @type {string | null} */ order) => h("button.sorter", {
      "data-key": `sort ${title}`, "aria-pressed": isByMean === (order !== null),
      onclick: () => address.replace({ order }),
    }, title);
    const sorters = [sorter("mean score", "mean"), intervalTitle(), sorter("rows", null)];
    const lines = meanLines(entries, ({ mean }) => {
      const failed = mean.rows - mean.count;
      return [count(mean.rows), count(mean.zeros), h(failed ? "span.is-failed" : "span.muted", {}, count(failed))];
    });
    replaceContent(body,
      tableOf("parts", [inline(by), ...sorters, "scored 0", "failed"], 1, lines),
      parts.length > MAX_PARTS && h("p.about", {}, `and ${count(parts.length - MAX_PARTS)} more values`));
  }

  /** @param {Context} context */
  #showCorrelations({ table, rows, address }) {
    const names = [...(table.has("score") ? ["score"] : []), ...table.distinctComponents].slice(0, MAX_CORRELATED);
    const columns = names.map((name) => table.numbers(name));
    const cell = (/** @type {number} */ y, /** @type {number} */ x) => {
      const value = correlation(columns[y], columns[x], rows);
      return h("button.cell", {
        title: `${names[y]} and ${names[x]}`, "data-key": `r ${names[y]} ${names[x]}`,
        style: { background: signedColor(value, 1, 50) },
        onclick: () => address.replace({ x: names[x], y: names[y] }),
      }, Number.isNaN(value) ? "–" : (Math.round(100 * value) / 100 + 0).toFixed(2));
    };
    const heading = (/** @type {string} */ name) => h("span", { title: name }, inline(shortName(name)));
    const lines = names.slice(1).map((name, index) =>
      [heading(name), ...names.slice(0, index + 1).map((_, x) => cell(index + 1, x))]);
    const titles = ["", ...names.slice(0, -1).map(heading)];
    const matrix = tableOf("matrix", titles, names.length, lines, "There are no two components to compare.");
    replaceContent(this.#parts.correlations.body, matrix);
    useArrowKeys(matrix, ".cell");
  }

  /** @param {Context} context @param {string[]} names @param {{x: string, y: string}} chosen */
  #showScatter({ table, rows, address }, names, { x, y }) {
    this.#choose("scatter", [["Vertical axis", names, y, "y"], ["Horizontal axis", names, x, "x"]]);
    this.#parts.scatter.plot.show(scatter({
      x: axisOf(table, x), y: axisOf(table, y), rows,
      choose: (chosenX, chosenY) => address.change({ [filterKey(x)]: chosenX, [filterKey(y)]: chosenY }),
    }));
  }
}
customElements.define("g-overview", Overview);

/** @param {import("./table.js").Table} table @param {string} name @returns {import("./plots.js").Axis} */
function axisOf(table, name) {
  const label = shortName(name);
  if (table.type(name) === "number") return { values: table.numbers(name), domain: table.extent(name), label };
  const names = table.values(name);
  // The rows of a value are spread around its place, so that their number can be seen.
  const values = table.once(`spread ${name}`, () => Float64Array.from(table.codes(name),
    (code, row) => (code < 0 ? NaN : code - 0.3 + 0.6 * ((row * 0.618034) % 1))));
  return { values, domain: [-0.5, names.length - 0.5], label, names };
}

function intervalTitle() {
  return h("span.hidden", {}, "95 % interval");
}

/**
 * Lines of a table: a button, the mean with its 95 % interval, the same as a bar, and more cells.
 * @param {Entry[]} entries
 * @param {(entry: Entry) => Child[]} others
 * @returns {(Child | Child[])[][]}
 */
function meanLines(entries, others) {
  const ends = entries.flatMap(({ mean: { mean, half } }) => [mean, mean - half, mean + half]).filter(Number.isFinite);
  const [low, high] = [Math.min(0, ...ends), Math.max(1, ...ends)];
  const at = (/** @type {number} */ value) => `${((100 * (value - low)) / (high - low)).toFixed(2)}%`;
  const between = (/** @type {number} */ from, /** @type {number} */ to) =>
    ({ left: at(from), right: `calc(100% - ${at(to)})` });
  return entries.map((entry) => {
    const { mean, half, count: size } = entry.mean;
    const bar = size > 0 && h("span.range", { "aria-hidden": "true" },
      h("i.base", { style: between(Math.min(0, mean), Math.max(0, mean)) }),
      half > 0 && h("i.spread", { style: between(mean - half, mean + half) }),
      h("i.point", { style: { left: at(mean) } }));
    const pick = h("button.link", { "data-key": entry.name, "aria-pressed": entry.isChosen, onclick: entry.onclick },
      inline(entry.text, 80));
    const interval = h("small", {}, size > 1 ? ` ± ${number(half)}` : "");
    return [pick, [number(mean), interval], bar, ...others(entry)];
  });
}
