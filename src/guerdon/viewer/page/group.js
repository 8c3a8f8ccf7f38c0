/** The rollouts of one task side by side, and the steps that were taken in the same state. */

import { advantageOf, formulaOf, statisticsOf } from "./advantage.js";
import { card, empty, h, pager, replaceContent, scrolled, tableOf } from "./dom.js";
import { reachOf, signedColor } from "./plots.js";
import { assistantTurns, barStyle, errorOf, messageView, scoreOf, stepsOf } from "./rollout.js";
import { actionText, messageText } from "./source.js";
import { brief, count, folded, inline, number, prose, signed } from "./text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./source.js").Row} Row */
/** @typedef {import("./dom.js").Child} Child */
/** @typedef {import("./rollout.js").StepNumbers} StepNumbers */
/** @typedef {{place: number, row: Row, step: StepNumbers}} Entry A step of one of the rollouts. */

const LANES = 24; // rollouts side by side
const ROWS = 200; // rows of a group that are fetched
const ALL = "all"; // in place of a state
const BEGINNING = "(the beginning)";
const WITHOUT_TEXT = "(a message without text)";

/** The view of one group. */
export class GroupView extends HTMLElement {
  /** @type {Context} */ #context = /** @type {any} */ (null); // until it is shown first
  #key = "";
  /** @type {number[]} */ #at = [];
  /** @type {Row[]} */ #rows = [];

  /** @param {Context} context */
  async show(context) {
    const { table } = context;
    this.#context = context;
    await table.load(["group", "score"]);
    const name = this.#nameOf(context);
    if (name === undefined) {
      return replaceContent(this, empty("The rows of this file have no groups, or too many to list them."));
    }
    const key = `${table.info.index} ${table.info.version} ${name}`;
    if (this.#key !== key) {
      const at = groupsOf(table).get(name) ?? [];
      const rows = await table.source.rows(table.info.index, at.slice(0, ROWS));
      if (this.#context !== context) return;
      [this.#key, this.#at, this.#rows] = [key, at, rows];
    }
    this.#build(context, name);
  }

  /**
   * The group of the address, or that of its row, or the first one whose scores differ.
   * @param {Context} context
   * @returns {string | undefined}
   */
  #nameOf({ address, table }) {
    const groups = groupsOf(table);
    if (!groups.size) return undefined;
    if (groups.has(address.get("group"))) return address.get("group");
    const own = table.value("group", address.integer("row") ?? -1);
    if (own !== undefined) return own;
    const scores = table.has("score") ? table.numbers("score") : null;
    const differs = (/** @type {number[]} */ [first, ...others]) =>
      others.some((row) => Math.abs((scores?.[row] ?? 0) - (scores?.[first] ?? 0)) > 0);
    return [...groups].find(([, rows]) => differs(rows))?.[0] ?? groups.keys().next().value;
  }

  /** @param {Context} context @param {string} name */
  #build(context, name) {
    const rows = this.#rows;
    const scores = rows.filter((row) => row.is_score_valid).map((row) => row.score);
    const { mean, deviation } = statisticsOf(scores, false);
    const figures = `${count(this.#at.length)} rollouts · ` + (scores.length
      ? `mean score ${number(mean)} · σ ${number(deviation)}${deviation === 0 ? " · all scores are the same" : ""}`
      : "no valid score");
    replaceContent(this,
      h("div.title", {},
        h("h1", {}, h("span.muted", {}, "group "), inline(name, 100)),
        h("span.muted", {}, figures),
        h("span.spring"),
        pager("group", (step) => this.move(step))),
      this.#steps(context),
      this.#sideBySide(context));
  }

  /** @param {number} step Opens the next group, or the one before. */
  move(step) {
    const { table, address } = this.#context;
    const names = [...groupsOf(table).keys()];
    const place = names.indexOf(this.#nameOf(this.#context) ?? "");
    const next = names[Math.min(Math.max(place + step, 0), names.length - 1)];
    const others = { row: null, anchor: null, step: null, rollout: null };
    if (next !== undefined) address.replace({ group: next, ...others });
  }

  // Side by side -----------------------------------------------------------------------------------

  /** @param {Context} context */
  #sideBySide({ address }) {
    const lanes = this.#rows.slice(0, LANES).map((row, place) => laneOf(row, this.#at[place]));
    const known = lanes.filter(({ keys }) => keys.length > 0);
    const same = known.length > 1 ? Math.min(...known.map(({ keys }) => commonPrefix(keys, known[0].keys))) : 0;
    const most = reachOf(lanes.flatMap(({ steps }) => steps.map(creditOf)));
    const where = known.length < 2 ? "" : same === 0 ? "They differ from the first message on."
      : `All begin with the same ${same === 1 ? "message" : `${count(same)} messages`}; then they differ.`;
    const some = this.#at.length > LANES && `The first ${LANES} of ${count(this.#at.length)} rollouts are shown. `;
    const first = () => h("ol.messages", {},
      ...known[0].messages.slice(0, same).map((each) => h("li", {}, messageView(each))));
    const views = lanes.map((lane, place) => h("section.lane", { "aria-label": `rollout ${place + 1}` },
      h("header", {}, h("a", { href: address.link({ view: "rollout", row: lane.at, group: null, step: null }) },
        inline(lane.row.id ?? `line ${lane.at + 1}`, 40)), scoreOf(lane.row), stripOf(lane, most)),
      errorOf(lane.row, 300),
      h("ol", {}, ...laterMessages(lane, same, most, nearestOf(lane, lanes)))));
    return card("beside-each-other", "Side by side", h("span.muted", {}, some, where),
      same > 0 && folded("the messages before they differ", first),
      scrolled("lanes", "Rollouts, side by side", ...views));
  }

  // Steps ------------------------------------------------------------------------------------------

  /**
   * The steps with their advantages: those that were taken in one state, or all.
   * @param {Context} context
   */
  #steps({ address }) {
    const entries = this.#rows.flatMap((row, place) => stepsOf(row).map((step) => ({ place, row, step })));
    if (!entries.some(({ step }) => step.advantage !== null)) return null;
    const most = reachOf(entries.map(({ step }) => step.advantage));
    const states = Map.groupBy(entries.filter(({ step }) => step.anchor !== null), ({ step }) => step.anchor);
    const shared = [...states].filter(([, own]) => own.length > 1);
    if (!shared.length) {
      const about = states.size > 0 && "No state was reached twice, so no step is compared with another.";
      return card("anchors", "Advantages", h("span.muted", {}, about), this.#entries(address, entries, most));
    }
    const varies = (/** @type {Entry[]} */ [first, ...others]) =>
      Number(others.some(({ step }) => step.return_ !== first.step.return_));
    shared.sort(([, a], [, b]) => varies(b) - varies(a) || b.length - a.length);
    const wanted = address.get("anchor");
    const [anchor, own] = wanted === ALL ? [ALL, entries]
      : [...states].find(([each]) => String(each) === wanted) ?? shared[0];
    const button = (/** @type {number | string | null} */ each, /** @type {Child} */ text, /** @type {Entry[]} */ own) =>
      h("li", {}, h("button.state", {
        "aria-pressed": each === anchor, "data-key": `anchor ${each}`,
        onclick: () => address.replace({ anchor: each, step: null, rollout: null }),
      },
      h("span.state-text", {}, text),
      each !== ALL && h("span.muted", {}, `${count(own.length)} steps · ${rangeOf(own)}`),
      h("span.dots", { "aria-hidden": "true" }, ...own.slice(0, 60).map(({ step }) =>
        h("i", { style: { background: signedColor(step.advantage, most) } })))));
    const single = states.size - shared.length;
    const several = shared.length === 1 ? "1 state was" : `${count(shared.length)} states were`;
    const about = `${several} reached by several steps; ${count(single)} by one`;
    return card("anchors", "The same state", h("span.muted", {}, about), h("div.halves", {},
      h("ul.states", {},
        ...shared.map(([each, own]) => button(each, inline(stateText(own[0]) || BEGINNING, 160), own)),
        button(ALL, `all ${count(entries.length)} steps of the group`, entries)),
      h("div.anchor", {},
        anchor !== ALL && scrolled("state-whole", "state", h("h3", {}, "state"), prose(stateText(own[0]) || BEGINNING)),
        this.#entries(address, own, most))));
  }

  /** @param {import("./address.js").Address} address @param {Entry[]} entries @param {number} most */
  #entries(address, entries, most) {
    const [rollout, index] = [address.integer("rollout"), address.integer("step")];
    const chosen = entries.find(({ place, step }) => place === rollout && step.index === index) ?? entries[0];
    const lines = entries.map((entry) => {
      const { place, row, step } = entry;
      const action = assistantTurns(row._rollout?.messages ?? [])[step.index];
      const title = h("button.link", {
        "aria-pressed": entry === chosen, "data-key": `entry ${place} ${step.index}`,
        title: "Show how this advantage is computed",
        onclick: () => address.replace({ rollout: place, step: step.index }),
      }, inline(row.id ?? place, 30), ` · ${step.index}`);
      const swatch = h("i.swatch", { style: { background: signedColor(step.advantage, most) } });
      return [title, action && inline(actionText(action), 90), number(step.reward), number(step.return_),
        [swatch, signed(step.advantage)]];
    });
    const titles = ["step", "action", "reward", "return", "advantage"];
    return h("div", {}, scrolled("wide", "Steps", tableOf("steps", titles, 2, lines)),
      chosen && this.#arithmetic(chosen));
  }

  /** @param {Entry} entry */
  #arithmetic({ row, step }) {
    const rollouts = this.#rows.filter((each) => each.is_score_valid)
      .map((each, place) => ({ score: each.score, row: place, steps: stepsOf(each) }));
    const title = h("h3", {}, "the advantage of ", inline(row.id, 30), `, step ${step.index}`);
    const without = (/** @type {string} */ text) => h("div.arithmetic", {}, title, h("p.about", {}, text));
    if (step.advantage === null) return without("This step has no advantage: the score of its rollout isn't valid.");
    const size = this.#at.length;
    if (size > ROWS) {
      return without(`Recorded: ${signed(step.advantage)}. The arithmetic is written out for groups of at most ${ROWS} `
        + `rollouts; this one has ${count(size)}.`);
    }
    const formula = formulaOf(rollouts);
    if (formula === null) {
      return without(`Recorded: ${signed(step.advantage)}. It is not computed by GiGPO, GRPO, Dr. GRPO or RLOO `
        + "from the rows of this group alone.");
    }
    const { scores, returns, omega } = formula;
    const lines = [];
    if (scores) lines.push(term(returns ? "A_E" : "A", "R", row.score, scores));
    if (returns) lines.push(term(scores ? "A_S" : "A", "R_t", step.return_ ?? 0, returns(step)));
    if (scores && returns) {
      const [episode, own] = [scores.of(row.score), returns(step).of(step.return_ ?? 0)];
      const sum = signed(advantageOf(formula, row.score, step));
      lines.push(`A = A_E + ω A_S = ${number(episode)} + ${brief(omega)} × ${number(own)} = ${sum}`);
    }
    const list = rollouts.map((each) => brief(each.score)).join(", ");
    return h("div.arithmetic", {}, title,
      h("p.about", {}, formula.name, omega !== null && `, ω = ${brief(omega)}`,
        ": this formula gives all recorded advantages of the group."),
      h("p.about", {}, `Scores R of the group: ${list}`),
      h("pre.formula", { tabindex: "0", role: "region", "aria-label": "arithmetic" }, lines.join("\n")),
      h("p.about", {}, `Recorded in the file: ${signed(step.advantage)}`));
  }
}
customElements.define("g-group", GroupView);

/** @param {import("./table.js").Table} table @returns {Map<string, number[]>} The rows of each group. */
function groupsOf(table) {
  const [values, codes] = [table.values("group"), table.codes("group")];
  const rows = () => (table.type("group") === "category" ? [...table.all].filter((row) => codes[row] >= 0) : []);
  return table.once("groups", () => Map.groupBy(rows(), (row) => values[codes[row]]));
}

/**
 * One line of the arithmetic.
 * @param {string} name
 * @param {string} symbol
 * @param {number} value
 * @param {import("./advantage.js").Statistics} statistics
 */
function term(name, symbol, value, { mean, deviation, divisor, divisorName, of }) {
  // As many digits as it takes to compute it again.
  const precise = (/** @type {number} */ value) => String(Number(value.toPrecision(6)));
  const difference = `${precise(value)} − ${precise(mean)}`;
  const result = `${signed(of(value))}${deviation === 0 ? "   (all are the same)" : ""}`;
  return divisorName
    ? `${name} = (${symbol} − μ) / ${divisorName} = (${difference}) / ${precise(divisor)} = ${result}`
    : `${name} = ${symbol} − μ = ${difference} = ${result}`;
}

/** @param {Entry[]} entries @returns {string} Their returns in words. */
function rangeOf(entries) {
  const returns = entries.map(({ step }) => step.return_ ?? 0);
  const [low, high] = [Math.min(...returns), Math.max(...returns)];
  return low === high ? `all return ${brief(low)}` : `returns ${brief(low)} to ${brief(high)}`;
}

/** @param {Entry} entry @returns {string} The last message before a step that isn't the assistant's. */
function stateText({ row, step }) {
  const messages = row._rollout?.messages ?? [];
  const turns = [...messages.keys()].filter((place) => messages[place].role === "assistant");
  const before = messages.slice(0, turns[step.index] ?? 0);
  const last = before.findLast((/** @type {Row} */ each) => each.role !== "assistant");
  return last ? messageText(last) || WITHOUT_TEXT : "";
}

/** @typedef {{row: Row, at: number, messages: Row[], keys: string[], steps: StepNumbers[]}} Lane */

/** @param {Row} row @param {number} at @returns {Lane} */
function laneOf(row, at) {
  const messages = /** @type {Row[]} */ (row._rollout?.messages ?? []);
  return { row, at, messages, keys: messages.map(keyOf), steps: stepsOf(row) };
}

/** @param {StepNumbers} step @returns {number | null} What its colour shows. */
function creditOf({ advantage, reward }) {
  return advantage ?? reward;
}

/** @param {Lane} lane @param {number} most */
function stripOf({ steps }, most) {
  const cells = steps.map((step) => h(step.isFailed ? "span.step.failed" : "span.step", {},
    h("i", { style: barStyle(creditOf(step), most) })));
  return h("div.strip", { "aria-hidden": "true" }, ...cells);
}

/**
 * The rollout that begins with the most of the same messages.
 * @param {Lane} lane
 * @param {Lane[]} lanes
 * @returns {{other: Lane, size: number}} `size`: how many these are.
 */
function nearestOf(lane, lanes) {
  const sizes = lanes.map((other) => ({ other, size: other === lane ? -1 : commonPrefix(other.keys, lane.keys) }));
  return sizes.reduce((best, each) => (each.size > best.size ? each : best));
}

/**
 * The messages after those that all rollouts have; between them, where the nearest one differs.
 * @param {Lane} lane
 * @param {number} same How many messages all have.
 * @param {number} most
 * @param {{other: Lane, size: number}} nearest
 */
function laterMessages({ messages, steps }, same, most, { other, size }) {
  const until = size === messages.length ? " to the end" : " until here";
  const parting = size > same && h("li.parting", {}, "same as ", inline(other.row.id, 40), until);
  let turn = assistantTurns(messages.slice(0, same)).length;
  return messages.slice(same).flatMap((message, index) => {
    const step = message.role === "assistant" ? steps[turn++] : null;
    const line = h("li", { style: step ? { borderLeftColor: signedColor(creditOf(step), most) } : {} },
      step && h("span.step-name", {}, `step ${step.index} · ${signed(creditOf(step))}`), messageView(message));
    return same + index + 1 === size ? [line, parting] : [line];
  });
}

/** @param {Row} message @returns {string} The same for the same messages. */
function keyOf({ role, content, tool_calls: calls = [] }) {
  return JSON.stringify([role, content, calls?.map((/** @type {Row} */ call) => call?.function)]);
}

/** @param {string[]} a @param {string[]} b @returns {number} How many entries both begin with. */
function commonPrefix(a, b) {
  const place = a.findIndex((each, place) => each !== b[place]);
  return place < 0 ? a.length : place;
}
