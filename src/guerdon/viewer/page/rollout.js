/** One rollout: its messages, and beside each turn its numbers and its tree. */

import { empty, h, pager, replaceContent, scrolled } from "./dom.js";
import { gauge, reachOf, signedColor } from "./plots.js";
import { messageText } from "./source.js";
import { failureNote } from "./status.js";
import { treeOf, treeView } from "./tree.js";
import { asText, code, count, folded, inline, laidOut, number, prose, signed } from "./text.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./source.js").Row} Row */
/** @typedef {import("./dom.js").Child} Child */

const IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;
const MAX_IMAGE = 8_000_000; // characters
const FOLD_LINES = 14;
const MAX_FACT = 80; // characters of a column of the task that is shown above the messages

/**
 * @typedef {{index: number, reward: number | null, advantage: number | null, return_: number | null,
 *   anchor: number | null, reason: string | null, isFailed: boolean}} StepNumbers
 */

/**
 * The numbers of the steps of a row, by the number of the assistant turn.
 * @param {Row} row
 * @returns {StepNumbers[]}
 */
export function stepsOf(row) {
  const first = row._rollout?.first_turn ?? row.steps?.[0]?.step_index ?? 0;
  const rewards = row.step_rewards ?? [];
  const trees = row.trees ?? [];
  const given = new Map((row.steps ?? []).map((/** @type {Row} */ each) => [each.step_index, each]));
  const turns = assistantTurns(row._rollout?.messages ?? []).length;
  const [, failed = -1] = /^step (\d+):/.exec(row.is_score_valid ? "" : row.error ?? "") ?? [];
  const size = Math.max(turns, first + rewards.length, ...[...given.keys()].map((index) => index + 1), 0);
  return Array.from({ length: size }, (_, index) => {
    const step = given.get(index) ?? {};
    const reward = rewards[index - first] ?? step.base_reward ?? null;
    return {
      index,
      reward,
      advantage: step.advantage ?? null,
      return_: step.return_to_go ?? null,
      anchor: step.anchor ?? null,
      reason: step.reason ?? null,
      // A failure that the rubric handled has a reward.
      isFailed: reward === null && (index === Number(failed) || trees[index - first]?.status === "failed"),
    };
  });
}

/** @param {Row[]} messages @returns {Row[]} */
export function assistantTurns(messages) {
  return messages.filter((each) => each.role === "assistant");
}

/** @param {StepNumbers[]} steps @returns {number} The greatest size of an advantage, return or reward. */
export function greatest(steps) {
  return reachOf(steps.flatMap(({ reward, return_, advantage }) => [reward, return_, advantage]));
}

/** The view of one row. */
export class RolloutView extends HTMLElement {
  /** @type {Context} */ #context = /** @type {any} */ (null); // until it is shown first
  /** @type {Row | null} */ #row = null;
  /** @type {Int32Array | null} */ #rows = null;
  #at = -1;
  #title = h("div.title");

  /** @param {Context} context */
  async show(context) {
    const { address, table, rows } = context;
    const at = address.integer("row") ?? rows[0];
    this.#context = context;
    if (at === undefined || at >= table.rows) {
      replaceContent(this, empty("There is no such row."));
      this.#at = -1;
      return;
    }
    const isOther = this.#at !== at;
    if (this.#rows !== rows || isOther) {
      const [row] = await table.source.rows(table.info.index, [at]);
      if (this.#context !== context) return;
      // Of a file that grows, the row is the same: what was unfolded in it stays so.
      const isSame = !isOther && JSON.stringify(row) === JSON.stringify(this.#row);
      [this.#rows, this.#at, this.#row] = [rows, at, row];
      this.#showTitle(context, row, at);
      if (!isSame) this.#build(row);
    }
    this.#showStep();
    const step = address.integer("step");
    if (isOther && step !== null) this.#scrollTo(step);
  }

  /** @param {Context} context @param {Row} row @param {number} at */
  #showTitle({ rows, address }, row, at) {
    const place = rows.indexOf(at);
    const gates = (row.stopped_by ?? []).map((/** @type {string} */ path) => path || "the reward itself");
    const group = address.link({ view: "group", row: at, group: null, step: null });
    replaceContent(this.#title,
      h("h1", {}, inline(row.id ?? `line ${at + 1}`, 120)),
      scoreOf(row),
      gates.length > 0 && h("span.tag.skipped", {}, inline(`stopped by ${gates.join(", ")}`, 120)),
      (row.group ?? null) !== null && h("a.quiet", { href: group }, "group ", inline(row.group, 60)),
      h("span.spring"),
      h("span.muted", {}, place < 0 ? "not among the filtered rows" : `${count(place + 1)} of ${count(rows.length)}`),
      pager("row", (step) => this.move(step)));
  }

  /** @param {Row} row */
  #build(row) {
    const steps = stepsOf(row);
    const messages = row._rollout?.messages ?? [];
    const { messages: _, id: __, group: ___, ...columns } = row._rollout ?? {};
    const { short = [], long = [] } = Object.groupBy(Object.entries(columns),
      ([, value]) => (asText(value).length <= MAX_FACT ? "short" : "long"));
    const size = row._too_large ?? row._rollout?._too_large;
    const notes = [
      size && h("p.note", {}, `This row has ${count(size)} bytes, which is more than is shown.`),
      errorOf(row),
      row.reason && h("p.note", {}, inline(row.reason, 4000)),
      row._unreadable && code(row._unreadable),
      ...(row.notes ?? []).map((/** @type {string} */ each) => h("p.note", {}, inline(each, 1000))),
    ];
    replaceContent(this,
      this.#title, ...notes,
      short.length > 0 && h("dl.facts", {}, ...short.map(([name, value]) =>
        h("div", {}, h("dt", {}, inline(name, 40)), h("dd", {}, inline(value, MAX_FACT))))),
      steps.length > 0 && this.#strip(steps),
      h("div.columns", {},
        h("div.conversation", {},
          ...long.map(([name, value]) => folded(inline(name, 80), () => prose(asText(value)))),
          messages.length
            ? messagesView(messages, steps, (index) => this.#select(index))
            : empty(row._rollout ? "The rollout has no messages that are shown."
              : "There is no rollout with this id. Pass --rollouts to see the messages of result rows.")),
        h("aside.side", {}, scrolled("sticky", "Rubrics of the step"))));
  }

  /** @param {StepNumbers[]} steps */
  #strip(steps) {
    const hasAdvantage = steps.some((each) => each.advantage !== null);
    const name = hasAdvantage ? "advantage" : "reward";
    const most = reachOf(steps.map((step) => step[name]));
    const cells = steps.map((step) =>
      h(step.isFailed ? "button.step.failed" : "button.step", {
        "data-step": step.index, "data-key": `step ${step.index}`,
        title: `step ${step.index}: ${name} ${signed(step[name])}`,
        "aria-label": `step ${step.index}, ${name} ${signed(step[name])}`,
        onclick: () => this.#select(step.index, true),
      }, h("i", { style: barStyle(step[name], most) })));
    return h("div.strip", { role: "group", "aria-label": `${name} of each step` },
      h("span.muted", {}, name), ...cells);
  }

  /** @param {number} index @param {boolean} [isScrolled] */
  #select(index, isScrolled = false) {
    this.#context.address.replace({ step: index });
    if (isScrolled) this.#scrollTo(index);
  }

  /** @param {number} index */
  #scrollTo(index) {
    this.querySelector(`.turn[data-step="${index}"]`)?.scrollIntoView({ block: "start" });
  }

  #showStep() {
    const row = /** @type {Row} */ (this.#row);
    const steps = stepsOf(row);
    const failed = steps.findIndex((each) => each.isFailed);
    const last = failed < 0 ? steps.length - 1 : failed;
    const index = this.#context?.address.integer("step") ?? last;
    markStep(this, index);
    const side = this.querySelector(".sticky");
    if (!side) return;
    const first = row._rollout?.first_turn ?? 0;
    const { tree, source } = treeOf(row, index - first);
    const wasNotScored = source === "row" && row.trees?.length;
    const step = steps[index];
    replaceContent(side,
      h("h2", {}, steps.length ? `Step ${index}` : "The reward"),
      step && !row._rollout && numbersView(step, greatest(steps)), // else they are beside the message
      step?.reason && h("p.reason", {}, inline(step.reason, 2000)),
      tree && !wasNotScored ? treeView(tree) : null,
      tree && source !== "trees" && h("p.about", {}, wasNotScored ? "The step was not scored."
        : `From the components of ${source === "step" || steps.length < 2 ? "this step" : "the whole rollout"}. `
          + "Weights, reasons and what was stopped are not in the file."),
      !tree && h("p.about", {}, row.is_score_valid ? "The row has no components." : "Nothing was scored."));
  }

  /** @param {number} step Opens the next row, or the one before. */
  move(step) {
    const { rows, address } = this.#context;
    const place = rows.indexOf(address.integer("row") ?? rows[0]);
    const next = rows[Math.min(Math.max(place + step, 0), rows.length - 1)];
    if (next !== undefined) address.replace({ row: next, group: null, step: null });
  }
}
customElements.define("g-rollout", RolloutView);

/** @param {Element} view @param {number} index The step that is shown beside the messages. */
export function markStep(view, index) {
  for (const each of view.querySelectorAll("[data-step]")) {
    const isCurrent = each.getAttribute("data-step") === String(index);
    each.classList.toggle("current", isCurrent);
    if (each.tagName === "BUTTON") each.setAttribute("aria-pressed", String(isCurrent));
  }
}

/** @param {Row} row @returns {HTMLElement} */
export function scoreOf(row) {
  if (row._too_large || row._unreadable) return h("span.tag.skipped", {}, "unreadable");
  if (row.is_score_valid === false || typeof row.score !== "number") return h("span.tag.failed", {}, "failed");
  const shown = h(row.score === 0 ? "b.big.zero" : "b.big", {}, number(row.score));
  return h("span.score-of", {}, h("small", {}, "score "), shown);
}

/** @param {Row} row @param {number} [length] @returns {Child} Its error, if it has one. */
export function errorOf({ error, is_score_valid: isHandled }, length) {
  return error && failureNote(error, isHandled ? "handled" : "failed", length);
}

/** @param {number | null} value @param {number} most */
export function barStyle(value, most) {
  if (value === null) return { visibility: "hidden" };
  if (value === 0) return { height: "2px", top: "calc(50% - 1px)", background: "var(--muted)" };
  const half = Math.max((50 * Math.abs(value)) / most, 4);
  return { height: `${half}%`, top: `${value > 0 ? 50 - half : 50}%`, background: signedColor(value, most) };
}

/**
 * Reward, return and advantage of a step on one scale.
 * @param {StepNumbers} step
 * @param {number} most
 * @returns {HTMLElement}
 */
export function numbersView({ reward, return_, advantage, isFailed }, most) {
  const line = (/** @type {string} */ name, /** @type {number | null} */ value, text = number(value)) => {
    const none = isFailed ? h("span.tag.failed", {}, "failed") : h("span.muted", {}, "none");
    const shown = value === null ? none : h(value === 0 ? "b.zero" : "b", {}, text);
    return h("div", {}, h("dt", {}, name), h("dd", {}, gauge(value, most), shown));
  };
  return h("dl.numbers", {}, line("reward", reward), return_ !== null && line("return", return_),
    advantage !== null && line("advantage", advantage, signed(advantage)));
}

// Messages -----------------------------------------------------------------------------------------

/**
 * A conversation; beside each assistant turn are its numbers.
 * @param {Row[]} messages
 * @param {StepNumbers[]} steps
 * @param {(index: number) => void} select
 * @returns {HTMLElement}
 */
export function messagesView(messages, steps, select) {
  const most = greatest(steps);
  const calls = messages.flatMap((each) => each.tool_calls ?? []);
  const names = new Map(calls.map((call) => [call?.id, call?.function?.name]));
  let turn = 0;
  const lines = messages.map((message) => {
    const isTurn = message.role === "assistant";
    const step = isTurn ? steps[turn++] : undefined;
    const children = [messageView(message, names.get(message.tool_call_id)), step &&
      h("button.beside", {
        "data-step": step.index, "data-key": `turn ${step.index}`,
        title: "Show the rubrics of this step", onclick: () => select(step.index),
      }, h("span.step-name", {}, `step ${step.index}`), numbersView(step, most))];
    return h(isTurn ? "li.turn" : "li", { "data-step": step ? step.index : null }, ...children);
  });
  return h("ol.messages", {}, ...lines);
}

/**
 * One message: its role, its text, images and tool calls.
 * @param {Row} message
 * @param {string} [toolName] The tool whose result it is.
 * @returns {HTMLElement}
 */
export function messageView(message, toolName) {
  const role = String(message.role ?? "unknown");
  const known = ["system", "developer", "user", "assistant", "tool", "function"].includes(role);
  const name = message.name ?? toolName;
  return h(`article.message.${known ? role : "unknown"}`, {},
    h("header", {}, h("span.role", {}, inline(role, 30)), name && h("span.muted", {}, inline(name, 60))),
    message.reasoning_content ? folded("reasoning", () => prose(String(message.reasoning_content))) : null,
    ...contentView(message, role),
    ...(message.tool_calls ?? []).map(callView));
}

/** @param {Row} message @param {string} role @returns {Child[]} */
function contentView(message, role) {
  const parts = Array.isArray(message.content) ? message.content : [];
  const images = parts.filter((part) => part?.type !== "text").map(partView);
  const text = messageText(message);
  if (!text) return images;
  const json = laidOut(text);
  const shown = json ?? text;
  const lines = shown.split("\n").length;
  const isRead = role === "assistant" || (role === "user" && json === null);
  const content = () => {
    const view = prose(text);
    if (message.is_error) view.classList.add("is-failed");
    return view;
  };
  if (isRead || (lines <= FOLD_LINES && shown.length <= 1200)) return [content(), ...images];
  return [folded([h("span.muted", {}, `${count(lines)} lines `), inline(text, 100)], content), ...images];
}

/**
 * An image of an allowed type, which is in its address.
 * @param {unknown} url
 * @param {string} alt
 * @returns {HTMLElement | null}
 */
export function imageView(url, alt) {
  const isImage = typeof url === "string" && url.length <= MAX_IMAGE && IMAGE.test(url);
  return isImage ? h("img", { src: url, alt, loading: "lazy" }) : null;
}

/** @param {Row} part @returns {Child} */
function partView(part) {
  const url = part?.image_url?.url ?? part?.image_url;
  const image = imageView(url, "image of the message");
  if (image) return image;
  if (typeof url === "string") return h("p.about", {}, "an image that isn't loaded: ", inline(url, 120));
  return folded([inline(part?.type ?? "part", 40)], () => code(JSON.stringify(part, null, 2)));
}

/** @param {Row} call @returns {HTMLElement} */
function callView(call) {
  const { name = "(no name)", arguments: given = "" } = call?.function ?? {};
  const text = typeof given === "string" ? given : JSON.stringify(given);
  const title = [
    h("span.call-name", {}, inline(name, 80)),
    h("span.muted", {}, "(", inline(text.replace(/^\{|\}$/g, ""), 120), ")"),
  ];
  const isOpen = text.length > 110 && text.length < 2000; // shorter ones are in the title
  return h("div.call", {}, folded(title, () => h("div", {}, ...argumentsView(text)), isOpen));
}

/** @param {string} text The arguments, mostly JSON. @returns {HTMLElement[]} Those with several lines are shown as text. */
function argumentsView(text) {
  const shown = laidOut(text);
  if (shown === null) return [code(text)];
  const { long, short } = Object.groupBy(Object.entries(JSON.parse(shown)),
    ([, value]) => (String(value).includes("\n") ? "long" : "short"));
  if (!long) return [code(shown)];
  return [
    ...(short ? [code(JSON.stringify(Object.fromEntries(short), null, 2))] : []),
    ...long.flatMap(([name, value]) => [h("p.about", {}, inline(name, 80)), code(asText(value))]),
  ];
}
