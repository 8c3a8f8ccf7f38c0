/** The overview of a file: distributions, means, correlations; all of it filters the rows below. */

import { filterKey } from "./address.js";
import { card, choice, empty, h, replaceContent, useArrowKeys } from "./dom.js";
import { NONE, shortName, toggled } from "./filters.js";
import { barsOf, histogram, plot, scatter, signedColor } from "./plots.js";
import { correlation, countCodes, meanOf, meansBy } from "./table.js";
import { count, inline, number } from "./text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./dom.js").Child} Child */
/** @typedef {import("./plots.js").Plot} Plot */

const MAX_CORRELATED = 12;
const MAX_PARTS = 100;
const MAX_CATEGORY = 12;

/** A titled part of the overview. Its height is set by its class, so that nothing moves. */
class Card {
  /** @param {string} name @param {string} title @param {string} [about] */
  constructor(name, title, about = "") {
    this.controls = h("div.controls");
    this.body = h("div.body");
    this.element = card(name, title, this.controls, about && h("p.about", {}, about), this.body);
  }
}

/** The view of a file of result rows. */
export class Overview extends HTMLElement {
  #cards = {
    score: new Card("score", "Scores"),
    figures: new Card("figures", "In numbers"),
    components: new Card("components", "Means of components", "with 95 % intervals"),
    parts: new Card("parts", "By column"),
    lengths: new Card("lengths", "Distribution"),
    stopped: new Card("stopped", "Stopped and failed"),
    correlations: new Card("correlations", "Correlations"),
    scatter: new Card("scatter", "Two columns", "drag a rectangle to filter"),
  };
  #plots = {
    score: plot("tall", () => []),
    lengths: plot("low", () => []),
    scatter: plot("square", () => []),
  };
  /** @type {Context | null} */ #context = null;
  #byRows = true;
  #later = 0;

  connectedCallback() {
    if (this.childElementCount) return;
    this.append(...Object.values(this.#cards).map((card) => card.element));
    this.#cards.score.body.append(this.#plots.score);
    this.#cards.lengths.body.append(this.#plots.lengths);
    this.#cards.scatter.body.append(this.#plots.scatter);
  }

  /** @param {Context} context */
  async show(context) {
    const { table, address } = context;
    this.#context = context;
    const names = table.named("number");
    const scoreColumn = table.has("score") ? "score" : names[0];
    const known = (/** @type {string} */ name) => names.find((each) => each === address.get(name));
    const chosen = {
      length: known("column") ?? names.find((name) => name === "turns") ?? names[0],
      by: address.get("by") || this.#defaultBy(context),
      x: known("x") ?? names.find((name) => name === "turns") ?? names[0],
      y: known("y") ?? scoreColumn,
    };
    await table.load([scoreColumn, "status", "stopped_by", "failure", ...Object.values(chosen), ...table.components]);
    if (this.#context !== context || scoreColumn === undefined) return;
    this.#showFigures(context);
    this.#showHistogram(context, "score", scoreColumn);
    this.#showHistogram(context, "lengths", chosen.length);
    this.#choose("lengths", "Column of the distribution", names, chosen.length, "column");
    this.#showComponents(context);
    this.#showStopped(context);
    this.#showParts(context, chosen.by);
    clearTimeout(this.#later);
    this.#later = setTimeout(() => {
      this.#showCorrelations(context);
      this.#later = setTimeout(() => this.#showScatter(context, chosen.x, chosen.y));
    });
  }

  /** @param {Context} context */
  #defaultBy({ table }) {
    const names = table.named("category").filter((name) => !["status", "failure"].includes(name));
    const few = names.filter((name) => table.values(name).length > 1 && table.values(name).length <= 50);
    return few.find((name) => name !== "stopped_by") ?? names[0] ?? "status";
  }

  /**
   * @param {"lengths" | "parts"} card @param {string} label @param {string[]} names
   * @param {string} chosen @param {string} parameter
   */
  #choose(card, label, names, chosen, parameter) {
    const choose = (/** @type {string} */ name) =>
      this.#context?.address.change({ [parameter]: name }, { replace: true });
    replaceContent(this.#cards[card].controls, choice(label, names, chosen, choose));
  }

  /** @param {Context} context */
  #showFigures({ table, rows }) {
    const score = table.has("score") ? table.numbers("score") : null;
    const mean = score ? meanOf(score, rows) : null;
    const zeros = score ? rows.reduce((sum, row) => sum + Number(score[row] === 0), 0) : 0;
    const failed = mean ? rows.length - mean.count : 0;
    const figure = (/** @type {string} */ name, /** @type {Child[]} */ ...value) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
    const share = (/** @type {number} */ part) =>
      h("small", {}, rows.length ? `${((100 * part) / rows.length).toFixed(1)} %` : "–");
    const { without_rollout: without = 0, duplicates = 0 } = table.info;
    replaceContent(this.#cards.figures.body, h("dl", {},
      figure("rows", count(rows.length), h("small", {}, `of ${count(table.rows)}`)),
      mean && figure("mean score", number(mean.mean),
        h("small", {}, mean.count > 1 ? `± ${number(mean.high - mean.mean)}` : "")),
      figure("scored 0", count(zeros), share(zeros)),
      figure("failed", h(failed ? "span.is-failed" : "span", {}, count(failed)), share(failed)),
      without > 0 && figure("without rollout", count(without), h("small", {}, "in the file")),
      duplicates > 0 && figure("ids given twice", count(duplicates), h("small", {}, "in the file")),
    ));
  }

  /** @param {Context} context @param {"score" | "lengths"} which @param {string} name */
  #showHistogram({ table, rows, address }, which, name) {
    const binned = table.binned(name);
    const { bins, whole } = binned;
    const chosen = address.filters.get(name) ?? [];
    const bars = barsOf(binned, rows, shortName(name), chosen);
    if (whole[bins.length] > 0) {
      const isScore = name === "score";
      bars.push({
        label: isScore ? "failed" : "none", title: isScore ? "failed" : `no ${shortName(name)}`,
        text: NONE, isChosen: chosen.includes(NONE), count: binned.count(rows)[bins.length], total: whole[bins.length],
        kind: isScore ? "failed" : "none",
      });
    }
    const isScale = bins.some((bin) => bin.low !== bin.high);
    const choose = (/** @type {string} */ text, /** @type {boolean} */ isAdded) =>
      this.#filter(name, text, isAdded);
    this.#plots[which].draw = histogram(bars, { label: `Distribution of ${shortName(name)}`, isScale, choose });
    this.#plots[which].redraw();
  }

  /** @param {string} name @param {string} text @param {boolean} [isAdded] */
  #filter(name, text, isAdded = false) {
    const { address } = /** @type {Context} */ (this.#context);
    address.change({ [filterKey(name)]: toggled(address.filters.get(name), text, isAdded) });
  }

  /** @param {Context} context */
  #showComponents({ table, rows, address }) {
    const score = table.has("score") ? table.numbers("score") : null;
    // As in the command's table: the components of a row that failed don't count.
    const valid = score ? rows.filter((row) => score[row] === score[row]) : rows;
    const means = table.components.map((name) => ({ name, ...meanOf(table.numbers(name), valid) }));
    const ends = means.flatMap((each) => [each.mean, each.low, each.high]).filter(Number.isFinite);
    const [low, high] = [Math.min(0, ...ends), Math.max(1, ...ends)];
    const at = (/** @type {number} */ value) => `${((100 * (value - low)) / (high - low)).toFixed(2)}%`;
    const between = (/** @type {number} */ from, /** @type {number} */ to) =>
      ({ left: at(from), right: `calc(100% - ${at(to)})` });
    const lines = means.map((each) => {
      const bar = h("span.range", { "aria-hidden": "true" });
      if (each.count) {
        bar.append(
          h("i.base", { style: between(Math.min(0, each.mean), Math.max(0, each.mean)) }),
          h("i.spread", { style: between(each.low, each.high) }),
          h("i.point", { style: { left: at(each.mean) } }),
        );
      }
      const path = shortName(each.name);
      const isOpen = address.get("column") === each.name;
      const open = () => address.change({ column: each.name }, { replace: true });
      return h("tr", {},
        h("th", { scope: "row" },
          h("button.link", { title: `Show the distribution of ${path}`, "data-key": each.name,
            "aria-pressed": isOpen, onclick: open }, inline(path))),
        h("td.number", {}, number(each.mean)),
        h("td", {}, bar),
        h("td.number.muted", {}, count(each.count)),
      );
    });
    const head = ["component", "mean", "", "rows"].map((title, place) =>
      h(place % 2 ? "th.number" : "th", { scope: "col" }, title || h("span.hidden", {}, "interval")));
    replaceContent(this.#cards.components.body, lines.length
      ? h("table.means", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...lines))
      : empty("The rows have no components."));
  }

  /** @param {Context} context */
  #showStopped({ table, rows, address }) {
    const blocks = [["stopped_by", "stopped by"], ["failure", "failed with"]].map(([name, title]) => {
      if (!table.has(name)) return null;
      const values = table.values(name);
      const part = countCodes(table.codes(name), values.length, rows);
      const whole = countCodes(table.codes(name), values.length, table.all);
      const places = [...values.keys()].filter((place) => whole[place]);
      places.sort((a, b) => whole[b] - whole[a]);
      if (!places.length) return null;
      const most = Math.max(...places.map((place) => whole[place]));
      const lines = places.slice(0, MAX_CATEGORY).map((place) =>
        h("li", {}, h(`button.meter.${name}`, {
          "data-key": `${name} ${values[place]}`,
          "aria-pressed": (address.filters.get(name) ?? []).includes(`=${values[place]}`),
          onclick: (/** @type {MouseEvent} */ event) => this.#filter(name, `=${values[place]}`, event.shiftKey),
        },
        h("span.fill", { style: { width: `${(100 * part[place]) / most}%` } }),
        h("span.name", {}, inline(values[place])),
        h("span.amount", {}, count(part[place])))));
      return h("div", {}, h("h3", {}, title), h("ul.meters", {}, ...lines));
    });
    const shown = blocks.filter((each) => each !== null);
    replaceContent(this.#cards.stopped.body,
      ...(shown.length ? shown : [empty("No row failed. The tree of a step shows what was stopped.")]));
  }

  /** @param {Context} context @param {string} by */
  #showParts({ table, rows, address }, by) {
    const names = table.named("category");
    if (names.length) this.#choose("parts", "Column of the table", names, by, "by");
    if (!names.includes(by)) {
      replaceContent(this.#cards.parts.body, empty("There is no column to break down by."));
      return;
    }
    const values = table.values(by);
    const codes = table.codes(by);
    const score = table.has("score") ? table.numbers("score") : null;
    const parts = meansBy(codes, values.length, score, rows)
      .map((part, place) => ({ value: values[place], ...part }))
      .filter((part) => part.rows > 0);
    const { compare } = new Intl.Collator("en", { numeric: true });
    if (this.#byRows) parts.sort((a, b) => b.rows - a.rows || compare(a.value, b.value));
    else parts.sort((a, b) => (b.mean || 0) - (a.mean || 0));
    const order = (/** @type {boolean} */ byRows) => () => {
      this.#byRows = byRows;
      if (this.#context) this.#showParts(this.#context, by);
    };
    const lines = parts.slice(0, MAX_PARTS).map((part) =>
      h("tr", {},
        h("th", { scope: "row" }, h("button.link", {
          "data-key": `part ${part.value}`,
          "aria-pressed": (address.filters.get(by) ?? []).includes(`=${part.value}`),
          onclick: (/** @type {MouseEvent} */ event) => this.#filter(by, `=${part.value}`, event.shiftKey),
        }, inline(part.value, 80))),
        h("td.number", {}, count(part.rows)),
        h("td.number", {}, number(part.mean), h("small", {}, part.count > 1 ? ` ± ${number(part.half)}` : "")),
        h("td.number", {}, count(part.zeros)),
        h("td.number", {},
          h(part.rows > part.count ? "span.is-failed" : "span.muted", {}, count(part.rows - part.count))),
      ));
    const sorter = (/** @type {string} */ title, /** @type {boolean} */ byRows) =>
      h("th.number", { scope: "col", "aria-sort": this.#byRows === byRows ? "descending" : "none" },
        h("button.sorter", { "data-key": `sort ${title}`, onclick: order(byRows) }, title));
    replaceContent(this.#cards.parts.body,
      h("table.parts", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, inline(by)), sorter("rows", true),
          sorter("mean score", false), h("th.number", { scope: "col" }, "scored 0"),
          h("th.number", { scope: "col" }, "failed"))),
        h("tbody", {}, ...lines)),
      parts.length > MAX_PARTS && h("p.about", {}, `and ${count(parts.length - MAX_PARTS)} more values`));
  }

  /** @param {Context} context */
  #showCorrelations({ table, rows, address }) {
    const names = [...(table.has("score") ? ["score"] : []), ...table.components].slice(0, MAX_CORRELATED);
    const columns = names.map((name) => table.numbers(name));
    const short = names.map(shortName);
    const values = columns.map((own, place) =>
      columns.map((other, at) => (at < place ? correlation(own, other, rows) : NaN)));
    const lines = short.slice(1).map((name, index) =>
      h("tr", {}, h("th", { scope: "row", title: name }, inline(name)),
        ...short.slice(0, -1).map((other, at) => at > index ? h("td") : h("td", {},
          h("button.cell", {
            title: `${name} and ${other}`, "data-key": `r ${name} ${other}`,
            style: { background: signedColor(values[index + 1][at], 1, 50) },
            onclick: () => address.change({ x: names[at], y: names[index + 1] }, { replace: true }),
          }, Number.isNaN(values[index + 1][at]) ? "–" : values[index + 1][at].toFixed(2))))));
    const head = short.slice(0, -1).map((name) => h("th", { scope: "col", title: name }, h("span", {}, inline(name))));
    const body = this.#cards.correlations.body;
    replaceContent(body, names.length > 1
      ? h("table.matrix", {}, h("thead", {}, h("tr", {}, h("td"), ...head)), h("tbody", {}, ...lines))
      : empty("There are no two components to compare."));
    useArrowKeys(body, ".cell");
  }

  /** @param {Context} context @param {string} x @param {string} y */
  #showScatter({ table, rows, address }, x, y) {
    const names = table.named("number");
    const choose = (/** @type {string} */ parameter) => (/** @type {string} */ name) =>
      address.change({ [parameter]: name }, { replace: true });
    replaceContent(this.#cards.scatter.controls,
      choice("Vertical axis", names, y, choose("y")), h("span.muted", {}, "over"),
      choice("Horizontal axis", names, x, choose("x")));
    this.#plots.scatter.draw = scatter({
      x: table.numbers(x), y: table.numbers(y), rows, xLabel: shortName(x), yLabel: shortName(y),
      domains: [table.extent(x), table.extent(y)],
      choose: (rangeX, rangeY) => address.change({ [filterKey(x)]: [rangeX], [filterKey(y)]: [rangeY] }),
    });
    this.#plots.scatter.redraw();
  }
}
customElements.define("g-overview", Overview);
