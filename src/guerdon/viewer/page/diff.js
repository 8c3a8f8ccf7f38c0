/** Two rewards on the same rollouts: who moved, and which pairs changed their order. */

import { card, choice, empty, h, replaceContent, tableOf } from "./dom.js";
import { filterKey } from "./address.js";
import { barsOf, histogram, plot, scatter } from "./plots.js";
import { messagesView, scoreOf, stepsOf } from "./rollout.js";
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
const LARGE = 3000; // rows of a group; the pairs of larger ones are not counted

/** The view of a diff file, or of two files of result rows. */
export class DiffView extends HTMLElement {
  /** @type {Context | null} */ #context = null;
  /** @type {Pairs | null} */ #pairs = null;
  #key = "";
  #plots = { moved: plot("low", () => []), scatter: plot("square", () => []) };
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
      return;
    }
    const key = `${table.info.index} ${table.rows} ${other?.info.index} ${other?.rows}`;
    if (this.#key !== key) {
      const pairs = await pairsOf(table, other);
      if (this.#context !== context) return;
      [this.#key, this.#pairs] = [key, pairs];
    }
    const pairs = /** @type {Pairs} */ (this.#pairs);
    await this.#showOverview(context, pairs, others);
    await this.#showRow(context, pairs);
  }

  /** @param {Context} context @param {Pairs} pairs @param {import("./table.js").Table[]} others */
  async #showOverview({ table, rows, address }, pairs, others) {
    const { before, after, difference, other } = pairs;
    await table.load(["group"]);
    const moves = movesOf(pairs, rows);
    const flips = flipsOf(pairs, rows, table.columns.get("group")?.type === "category" ? table.codes("group") : null);
    const figure = (/** @type {string} */ name, /** @type {string} */ value, about = "") =>
      h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, about)));
    const both = rows.filter((row) => difference[row] === difference[row]);
    const [own, theirs] = [meanOf(before, both).mean, meanOf(after, both).mean];
    const figures = h("dl", {},
      figure("valid in both", count(both.length), `of ${count(rows.length)}`),
      figure("mean before", number(own)), figure("mean after", number(theirs), signed(theirs - own)),
      figure("rose", count(moves.rose)), figure("fell", count(moves.fell)), figure("unmoved", count(moves.unmoved)),
      figure("valid before only", count(moves.lost)), figure("valid after only", count(moves.won)),
      flips && figure("pairs flipped", count(flips.flipped), `of ${count(flips.pairs)}`));
    const listed = [...new Set([...moves.most, ...(flips?.clearest ?? []).flat()])];
    const named = listed.length ? await table.source.rows(table.info.index, listed, true) : [];
    const ids = new Map(named.map(({ id }, place) => [listed[place], id]));
    const opener = (/** @type {string} */ list, /** @type {number} */ row) => h("button.link", {
      "data-key": `${list} ${row}`, onclick: () => address.change({ row }),
    }, inline(ids.get(row) ?? `line ${row + 1}`, 40));
    const movedRows = moves.most.map((row) => h("tr", {},
      h("th", { scope: "row" }, opener("moved", row)),
      ...[number(before[row]), number(after[row]), signed(difference[row])].map((text) => h("td.number", {}, text))));
    const groups = table.has("group") ? table.values("group") : [];
    const flipLines = (flips?.clearest ?? []).map(([a, b]) => h("tr", {},
      h("td", {}, inline(groups[table.codes("group")[a]], 40)),
      ...[a, b].flatMap((row) => [
        h("td", {}, opener("flip", row)),
        h("td.number", {}, `${brief(before[row])} → ${brief(after[row])}`)])));
    const titled = (/** @type {import("./table.js").Table} */ each) => `${each.info.index}: ${each.info.name}`;
    const select = other && h("p.pair", {}, inline(table.info.name, 60), " → ",
      choice("Compare with", others.map(titled), titled(other), (name) => address.change({ with: parseInt(name) })));
    const part = (/** @type {string} */ name, /** @type {string} */ title, /** @type {HTMLElement} */ body) =>
      card(name, title, null, h("div.body", {}, body));
    const titles = ["group", "better before", "scores", "better after", "scores"];
    replaceContent(this.#overview, select,
      part("figures", "In numbers", figures),
      part("lengths", "How the scores moved", this.#plots.moved),
      part("scatter", "After over before", this.#plots.scatter),
      part("moved", "Moved most", tableOf("moves", ["rollout", "before", "after", "difference"], 1, movedRows)),
      flips && part("flips", "Pairs that changed their order", flipLines.length
        ? tableOf("pairs", titles, titles.length, flipLines)
        : empty("No pair of a group changed its order.")));
    this.#draw(pairs, rows);
  }

  /** @param {Pairs} pairs @param {Int32Array} rows */
  #draw({ before, after, difference }, rows) {
    const { table, address } = /** @type {Context} */ (this.#context);
    const binned = new Binned(difference);
    const hasColumn = table.has("difference");
    const chosen = address.filters.get("difference") ?? [];
    const bars = barsOf(binned, rows, "difference", chosen);
    const isScale = binned.bins.some((bin) => bin.low !== bin.high);
    const choose = (/** @type {string} */ text) => {
      if (hasColumn) address.change({ [filterKey("difference")]: chosen.includes(text) ? null : [text] });
    };
    this.#plots.moved.draw = histogram(bars, { label: "Differences", isScale, choose });
    this.#plots.moved.redraw();
    const ends = [...extent(before), ...extent(after)].filter(Number.isFinite);
    const domain = /** @type {[number, number]} */ ([Math.min(...ends), Math.max(...ends)]);
    this.#plots.scatter.draw = scatter({
      x: before, y: after, rows, xLabel: "before", yLabel: "after", domains: [domain, domain], isSquare: true,
      choose: (x, y) => address.change(hasColumn
        ? { [filterKey("before")]: [x], [filterKey("after")]: [y] }
        : { [filterKey("score")]: [x] }),
    });
    this.#plots.scatter.redraw();
  }

  /** @param {Context} context @param {Pairs} pairs */
  async #showRow({ table, address }, { other, joined }) {
    const at = address.integer("row");
    if (at === null || at >= table.rows) return this.#row.replaceChildren();
    const [row] = await table.source.rows(table.info.index, [at]);
    const matched = joined ? joined[at] : -1;
    const [theirs] = other && matched >= 0 ? await other.source.rows(other.info.index, [matched]) : [null];
    const sides = other ? [row, theirs] : [row.before, row.after];
    const messages = row._rollout?.messages ?? [];
    const columns = sides.map((side, place) => {
      const title = place === 0 ? "before" : "after";
      if (!side) return h("section", {}, h("h3", {}, title), empty("The other file has no row with this id."));
      const { tree } = treeOf(side, (side.step_rewards ?? []).length - 1);
      return h("section", {}, h("h3", {}, title), scoreOf(side),
        side.error && h("p.note.is-failed", {}, inline(side.error, 2000)),
        tree ? treeView(tree) : empty("There are no components."));
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

/** @param {Pairs} pairs @param {Int32Array} rows */
function movesOf({ before, after, difference }, rows) {
  const found = { rose: 0, fell: 0, unmoved: 0, lost: 0, won: 0 };
  for (const row of rows) {
    const moved = difference[row];
    if (moved > 0) found.rose++;
    else if (moved < 0) found.fell++;
    else if (moved === 0) found.unmoved++;
    else if (before[row] === before[row]) found.lost++;
    else if (after[row] === after[row]) found.won++;
  }
  const moved = [...rows].filter((row) => Math.abs(difference[row]) > 0);
  moved.sort((a, b) => Math.abs(difference[b]) - Math.abs(difference[a]) || a - b);
  return { ...found, most: moved.slice(0, MOVED) };
}

/**
 * The pairs of rollouts of one group whose order changed: better before, better after.
 * @param {Pairs} pairs
 * @param {Int32Array} rows
 * @param {Int32Array | null} groups
 */
function flipsOf({ before, after, difference }, rows, groups) {
  if (groups === null) return null;
  /** @type {Map<number, number[]>} */
  const members = new Map();
  for (const row of rows) {
    if (groups[row] < 0 || difference[row] !== difference[row]) continue;
    const own = members.get(groups[row]);
    if (own) own.push(row);
    else members.set(groups[row], [row]);
  }
  let pairs = 0;
  let flipped = 0;
  /** @type {{pair: [number, number], size: number}[]} */
  const clearest = [];
  for (const own of members.values()) {
    if (own.length > LARGE) return null;
    for (let i = 0; i < own.length; i++) {
      for (let j = i + 1; j < own.length; j++) {
        pairs++;
        const [was, is] = [before[own[i]] - before[own[j]], after[own[i]] - after[own[j]]];
        if (was * is >= 0) continue;
        flipped++;
        const pair = /** @type {[number, number]} */ (was > 0 ? [own[i], own[j]] : [own[j], own[i]]);
        if (clearest.length < 10_000) clearest.push({ pair, size: Math.min(Math.abs(was), Math.abs(is)) });
      }
    }
  }
  clearest.sort((a, b) => b.size - a.size);
  return { pairs, flipped, clearest: clearest.slice(0, FLIPS).map((each) => each.pair) };
}
