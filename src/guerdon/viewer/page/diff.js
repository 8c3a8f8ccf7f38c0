/** Two rewards on the same rollouts: which scores and which pairs changed. */

import { filterKey } from "./address.js";
import { card, choice, empty, figures, h, replaceContent, tableOf } from "./dom.js";
import { histogram, plot, scatter } from "./plots.js";
import { errorOf, messagesView, scoreOf, stepsOf } from "./rollout.js";
import { Binned, extent, meanOf } from "./table.js";
import { brief, count, folded, inline, number, signed } from "./text.js";
import { treeOf, treeView } from "./tree.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./source.js").Row} Row */
/**
 * @typedef {{before: Float64Array, after: Float64Array, difference: Float64Array,
 *   other: import("./table.js").Table | null, joined: Int32Array | null}} Pairs
 */

const MOVED = 50;
const FLIPS = 50;
const COMBINED = 200; // rows of a group; of larger ones, not all pairs are listed

/** The view of a diff file, or of two files of result rows. */
export class DiffView extends HTMLElement {
  /** @type {Context} */ #context = /** @type {any} */ (null); // until it is shown first
  /** @type {Pairs | null} */ #pairs = null;
  #key = "";
  #plots = { moved: plot("low"), scatter: plot("square") };
  #overview = h("div.diff");
  #row = h("div.diff-row");

  connectedCallback() {
    if (!this.childElementCount) this.append(this.#overview, this.#row);
  }

  /** @param {Context} context */
  async show(context) {
    this.#context = context;
    const { table, address, tables } = context;
    const others = tables.filter((each) => each !== table && each.info.kind === "rows");
    const wanted = others.find((each) => each.info.index === address.integer("with"));
    const other = table.info.kind === "diff" ? null : wanted ?? others[0];
    if (other === undefined) {
      const about = "Open two files of result rows, or one that guerdon diff wrote, to compare them.";
      replaceContent(this.#overview, empty(about));
      return this.#row.replaceChildren();
    }
    const key = JSON.stringify([table, other].map((each) => [each?.info.index, each?.info.version]));
    if (this.#key !== key) {
      const pairs = await pairsOf(table, other);
      if (this.#context !== context) return;
      [this.#key, this.#pairs] = [key, pairs];
    }
    const pairs = /** @type {Pairs} */ (this.#pairs);
    await this.#showOverview(context, pairs, others);
  }

  /** @param {Context} context @param {Pairs} pairs @param {import("./table.js").Table[]} others */
  async #showOverview(context, pairs, others) {
    const { table, rows, address } = context;
    const { before, after, difference, other } = pairs;
    await table.load(["group"]);
    const moved = [...rows].filter((row) => Math.abs(difference[row]) > 0)
      .sort((a, b) => Math.abs(difference[b]) - Math.abs(difference[a]) || a - b).slice(0, MOVED);
    const codes = table.type("group") === "category" ? table.codes("group") : null;
    const flips = flipsOf(pairs, rows, codes);
    const listed = [...new Set([...moved, ...(flips?.clearest ?? []).flat()])];
    const named = listed.length ? await table.source.rows(table.info.index, listed, true) : [];
    if (this.#context !== context) return;
    const ids = new Map(named.map(({ id }, place) => [listed[place], id]));
    const opener = (/** @type {string} */ list, /** @type {number} */ row) => h("button.link", {
      "data-key": `${list} ${row}`, onclick: () => address.change({ row }),
    }, inline(ids.get(row) ?? `line ${row + 1}`, 40));
    const moves = moved.map((row) =>
      [opener("moved", row), number(before[row]), number(after[row]), signed(difference[row])]);
    const flipped = (flips?.clearest ?? []).map(([a, b]) => [
      inline(table.value("group", a), 40),
      ...[a, b].flatMap((row) => [opener("flip", row), `${brief(before[row])} → ${brief(after[row])}`])]);
    const part = (/** @type {string} */ name, /** @type {string} */ title, /** @type {HTMLElement} */ body) =>
      card(name, title, null, h("div.body", {}, body));
    const titles = ["group", "better before", "scores", "better after", "scores"];
    replaceContent(this.#overview,
      other && h("p.pair", {}, inline(table.info.name, 60), " → ",
        choice("Compare with", others.map(({ title }) => title), other.title, (title) =>
          address.change({ with: parseInt(title) - 1 }))),
      part("figures", "In numbers", figuresOf(pairs, rows, flips)),
      part("lengths", "How the scores moved", this.#plots.moved),
      part("scatter", "After over before", this.#plots.scatter),
      part("moved", "Moved most", tableOf("moves", ["rollout", "before", "after", "difference"], 1, moves)),
      flips && part("flips", "Pairs that changed their order",
        tableOf("pairs", titles, titles.length, flipped, "No pair of a group changed its order.")));
    this.#draw(pairs, rows);
    await this.#showRow(context, pairs);
  }

  /** @param {Pairs} pairs @param {Int32Array} rows */
  #draw({ before, after, difference }, rows) {
    const { table, address } = this.#context;
    const hasColumn = table.has("difference");
    this.#plots.moved.show(histogram(new Binned(difference), rows, {
      name: "difference", chosen: address.filters.get("difference"),
      choose: hasColumn ? (text, isAdded) => address.filter("difference", text, isAdded) : undefined,
    }));
    const ends = [...extent(before), ...extent(after)].filter(Number.isFinite);
    const domain = /** @type {[number, number]} */ ([Math.min(...ends), Math.max(...ends)]);
    this.#plots.scatter.show(scatter({
      x: { values: before, domain, label: "before" }, y: { values: after, domain, label: "after" }, rows, isSquare: true,
      choose: (x, y) => address.change(hasColumn
        ? { [filterKey("before")]: x, [filterKey("after")]: y }
        : { [filterKey("score")]: x }),
    }));
  }

  /** @param {Context} context @param {Pairs} pairs */
  async #showRow(context, { other, joined }) {
    const { table, address } = context;
    const at = address.integer("row");
    if (at === null || at >= table.rows) return this.#row.replaceChildren();
    const [row] = await table.source.rows(table.info.index, [at]);
    const matched = joined ? joined[at] : -1;
    const [theirs] = other && matched >= 0 ? await other.source.rows(other.info.index, [matched]) : [null];
    const sides = other ? [row, theirs] : [row.before, row.after];
    if (this.#context !== context) return;
    const messages = row._rollout?.messages ?? [];
    const trees = sides.map((side) => (side ? treeOf(side, side.trees?.length === 1 ? 0 : -1).tree : null));
    const columns = sides.map((side, place) => {
      const [tree, title] = [trees[place], h("h3", {}, ["before", "after"][place])];
      if (!side) return h("section", {}, title, empty("The other file has no row with this id."));
      return h("section", {}, title, scoreOf(side),
        errorOf(side),
        tree ? marked(treeView(tree), tree, trees[1 - place]) : empty("There are no components."));
    });
    const close = () => address.change({ row: null });
    replaceContent(this.#row, h("section.card", { "aria-label": "The row that is open" },
      h("header", {}, h("h2", {}, inline(row.id, 80)), h("button", { onclick: close }, "Close")),
      h("div.halves", {}, ...columns),
      messages.length > 0 && folded("messages", () => messagesView(messages, stepsOf(row), () => {}))));
    this.#row.scrollIntoView({ block: "nearest" });
  }
}
customElements.define("g-diff", DiffView);

/** @param {Pairs} pairs @param {Int32Array} rows @param {ReturnType<typeof flipsOf>} flips */
function figuresOf({ before, after, difference }, rows, flips) {
  const both = rows.filter((row) => difference[row] === difference[row]);
  const [own, theirs] = [meanOf(before, both).mean, meanOf(after, both).mean];
  const amount = (/** @type {(row: number) => boolean} */ test) => count(rows.filter(test).length);
  return figures([
    ["valid in both", count(both.length), `of ${count(rows.length)}`],
    ["mean before", number(own)], ["mean after", number(theirs), signed(theirs - own)],
    ["rose", amount((row) => difference[row] > 0)], ["fell", amount((row) => difference[row] < 0)],
    ["unmoved", amount((row) => difference[row] === 0)],
    ["valid before only", amount((row) => before[row] === before[row] && after[row] !== after[row])],
    ["valid after only", amount((row) => before[row] !== before[row] && after[row] === after[row])],
    flips && ["pairs flipped", count(flips.flipped), `of ${count(flips.pairs)}`],
  ]);
}

/** @typedef {import("./tree.js").Node_} Node_ */

/**
 * Marks the rubrics of a tree that another tree has with another value, weight or status.
 * @param {HTMLElement} view
 * @param {Node_} tree
 * @param {Node_ | null} other
 * @returns {HTMLElement}
 */
function marked(view, tree, other) {
  const known = new Map(other ? rubricsOf(other) : []);
  const lines = view.querySelectorAll("li:has(> .node)");
  rubricsOf(tree).forEach(([path, state], place) =>
    lines[place]?.classList.toggle("changed", (known.get(path) ?? state) !== state));
  return view;
}

/** @param {Node_} node @param {string} [above] @returns {[string, string][]} The path and the state of each rubric, as listed. */
function rubricsOf({ name, value, weight, status, children = [] }, above = "") {
  const path = `${above}.${name}`;
  return [[path, JSON.stringify([value, weight, status])], ...children.flatMap((each) => rubricsOf(each, path))];
}

/**
 * @param {import("./table.js").Table} table
 * @param {import("./table.js").Table | null} other
 * @returns {Promise<Pairs>}
 */
async function pairsOf(table, other) {
  if (other === null) {
    await table.load(["before", "after"]);
    const [before, after] = [table.numbers("before"), table.numbers("after")];
    return { before, after, difference: after.map((value, row) => value - before[row]), other: null, joined: null };
  }
  await Promise.all([table.load(["score"]), other.load(["score"])]);
  const joined = await table.source.join(table.info.index, other.info.index);
  const before = table.numbers("score");
  const theirs = other.numbers("score");
  const after = Float64Array.from(joined, (row) => (row < 0 ? NaN : theirs[row]));
  return { before, after, difference: after.map((value, row) => value - before[row]), other, joined };
}

/**
 * The pairs of rollouts of one group whose order changed: better before, better after. They are
 * counted in O(n log n), as the inversions that are left when the rollouts are sorted by their score
 * before; in a large group only neighbours of this order are candidates for the clearest pairs.
 * @param {Pairs} pairs
 * @param {Int32Array} rows
 * @param {Int32Array | null} groups
 * @returns {{pairs: number, flipped: number, clearest: [number, number][]} | null}
 */
function flipsOf({ before, after, difference }, rows, groups) {
  if (groups === null) return null;
  const valid = [...rows].filter((row) => groups[row] >= 0 && difference[row] === difference[row]);
  let [pairs, flipped] = [0, 0];
  /** @type {{pair: [number, number], size: number}[]} */
  const clearest = [];
  for (const own of Map.groupBy(valid, (row) => groups[row]).values()) {
    own.sort((a, b) => before[a] - before[b] || after[a] - after[b]);
    pairs += (own.length * (own.length - 1)) / 2;
    const found = inversions(Float64Array.from(own, (row) => after[row]));
    flipped += found;
    const reach = found && own.length <= COMBINED ? own.length : 1;
    own.forEach((worse, place) => {
      for (const better of found ? own.slice(place + 1, place + 1 + reach) : []) {
        const size = Math.min(before[better] - before[worse], after[worse] - after[better]);
        if (size > 0) clearest.push({ pair: [better, worse], size });
      }
    });
  }
  clearest.sort((a, b) => b.size - a.size);
  return { pairs, flipped, clearest: clearest.slice(0, FLIPS).map((each) => each.pair) };
}

/** @param {Float64Array} values Sorted afterwards. @returns {number} The pairs in the wrong order. */
function inversions(values) {
  if (values.length < 2) return 0;
  const [left, right] = [values.slice(0, values.length >> 1), values.slice(values.length >> 1)];
  let found = inversions(left) + inversions(right);
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    const isLeft = j === right.length || left[i] <= right[j];
    if (!isLeft) found += left.length - i;
    values[i + j] = isLeft ? left[i++] : right[j++];
  }
  return found;
}
