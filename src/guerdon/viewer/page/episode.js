/** An episode that is played, and its record: the row that guerdon's rollout worker would write. */

import { stepsOf } from "./rollout.js";

/** @typedef {Record<string, any>} Data */
/**
 * @typedef {{action: Data, data: Data | null, agent: string | null, error: string | null}} PlayedStep
 *   `data` is the server's answer; null if the step failed.
 */

const TEXTS = ["content", "message", "text", "prompt"];

/** @param {Data} data An answer. @returns {Data} Its metadata. */
export function metadataOf(data) {
  return data.metadata ?? data.observation?.metadata ?? {};
}

/** @param {Data} data An answer. @returns {Data} Its observation, without what is beside it. */
export function contentOf({ observation }) {
  const { done: _, reward: __, metadata: ___, ...content } = observation ?? {};
  return content;
}

/** One episode, from its reset. */
export class Episode {
  /** @type {PlayedStep[]} */ steps = [];
  /** @type {Data[]} */ messages;
  /** Whether the session was lost, and its environment with it. */
  isLost = false;

  /** @param {Data} first The answer to the reset. @param {{seed: number | null, id: string, columns: Data}} options `columns`: of the row. */
  constructor(first, { seed, id, columns }) {
    this.first = first;
    this.seed = seed;
    this.columns = columns;
    this.id = id;
    const content = contentOf(first);
    const given = isConversation(content.messages) ? content.messages : null;
    this.messages = [...(given ?? [{ role: "user", content: textOfObservation(content) }])];
    this.firstTurn = this.messages.filter(({ role }) => role === "assistant").length;
  }

  get isDone() {
    return this.steps.at(-1)?.data?.done === true;
  }

  /** Whether no further step can be taken. */
  get hasEnded() {
    return this.isDone || this.isLost || (this.steps.at(-1)?.error ?? null) !== null;
  }

  get rewards() {
    return this.steps.map(({ data }) => /** @type {number | null} */ (data?.reward ?? null));
  }

  /** @param {number} place @returns {string | null} Why the step or its reward failed. */
  failure(place) {
    const { data, error } = this.steps[place];
    return error ?? (data && metadataOf(data).reward_error) ?? null;
  }

  /** The numbers of each turn, those before the episode included. */
  get numbers() {
    const trees = this.steps.map((_, place) => ({ status: this.failure(place) === null ? "scored" : "failed" }));
    return stepsOf({ _rollout: this.row, step_rewards: this.rewards, trees });
  }

  /** @param {Data} action @param {Data | null} data @param {string | null} [error] */
  add(action, data, error = null) {
    const agent = metadataOf(this.steps.at(-1)?.data ?? this.first).agent ?? null;
    const turn = this.firstTurn + this.steps.length;
    this.steps.push({ action, data, agent, error });
    const calls = callsOf(action).map((call, place) => ({
      id: `call_${turn}_${place}`, type: "function",
      function: { name: call.tool_name, arguments: jsonText(call.arguments ?? {}) },
    }));
    const text = action.type === "message" ? String(action.content ?? "") : jsonText(action);
    this.messages.push(calls.length
      ? { role: "assistant", content: null, tool_calls: calls } : { role: "assistant", content: text });
    if (data) this.messages.push(...answersOf(contentOf(data), calls));
  }

  /** @returns {Data} The row, which `guerdon score` reads. */
  get row() {
    const error = this.steps.at(-1)?.error ?? null;
    const agents = this.steps.map(({ agent }) => agent);
    const shares = this.steps.map(({ data }) => (data && metadataOf(data).agent_rewards) ?? null);
    return {
      ...this.columns, id: this.id, group: this.id, messages: this.messages,
      ended: error !== null ? "error" : this.isDone ? "done" : "max_steps",
      error: error !== null ? `step ${this.firstTurn + this.steps.length - 1}: ${error}` : null,
      seed: this.seed, env_rewards: this.rewards, first_turn: this.firstTurn,
      ...(agents.some((each) => each !== null) ? { agents, agent_rewards: shares } : {}),
    };
  }
}

/** @param {Data} action @returns {Data[]} The tool calls of an action. */
function callsOf(action) {
  return action.type === "call_tool" ? [action] : action.type === "call_tools" ? action.calls ?? [] : [];
}

/** @param {unknown} given @returns {boolean} */
export function isConversation(given) {
  return Array.isArray(given) && given.length > 0
    && given.every((each) => each && typeof each === "object" && "role" in each && "content" in each);
}

/** @param {Data} content @returns {Data[]} The results of tools; none if it has something else. */
export function outcomesOf(content) {
  const given = Array.isArray(content.results) ? content.results : [content];
  const isOutcome = (/** @type {any} */ each) => ["tool_name", "result", "error"].every((name) => name in Object(each));
  return given.every(isOutcome) ? given : [];
}

/**
 * The messages of an observation after the first.
 * @param {Data} content
 * @param {Data[]} calls The calls of the turn before.
 * @returns {Data[]}
 */
function answersOf(content, calls) {
  const outcomes = outcomesOf(content);
  if (calls.length && outcomes.length === calls.length) {
    return outcomes.map((outcome, place) => ({ ...outcomeMessage(outcome), tool_call_id: calls[place].id }));
  }
  if (Array.isArray(content.messages) && !content.messages.length && Object.keys(content).length === 1) return [];
  const text = textOfObservation(content);
  if (!calls.length) return [{ role: "user", content: text }];
  return calls.map(({ id }) => ({ role: "tool", content: text, tool_call_id: id }));
}

/** @param {Data} outcome @returns {Data} The message with the result of a call, or its error. */
export function outcomeMessage({ result, error }) {
  const blocks = result?.content ?? [];
  const parts = blocks.map((/** @type {Data} */ each) => each.type === "image"
    ? { type: "image_url", image_url: { url: `data:${each.mimeType ?? "image/png"};base64,${each.data}` } }
    : { type: "text", text: String(each.text ?? "") });
  const hasImage = parts.some((/** @type {Data} */ each) => each.type === "image_url");
  const text = parts.map((/** @type {Data} */ each) => each.text).join("\n");
  const failed = error || result?.is_error ? { is_error: true, error_type: error?.error_type ?? "execution_error" } : {};
  return { role: "tool", content: error ? error.message : hasImage ? parts : text, ...failed };
}

/** @param {Data} content @returns {string} The text of an observation: its own, or its JSON. */
function textOfObservation(content) {
  const { messages } = content;
  const texts = isConversation(messages) ? messages.map((/** @type {Data} */ each) => plainText(each.content) ?? "") : messages;
  if (Array.isArray(texts) && texts.length && texts.every((each) => typeof each === "string")) return texts.join("\n");
  for (const name of TEXTS) {
    const text = plainText(content[name]);
    if (text) return text;
  }
  return jsonText(content);
}

/** @param {unknown} value @returns {string} JSON with spaces as Python writes it, so that rollouts are alike. */
function jsonText(value) {
  const lines = JSON.stringify(value, null, 1);
  return lines.replace(/([[{])\n\s*/g, "$1").replace(/\n\s*([\]}])/g, "$1").replace(/\n\s*/g, " ");
}

/** @param {unknown} content @returns {string | null} A text, or the parts of one. */
function plainText(content) {
  if (typeof content === "string") return content;
  const isText = Array.isArray(content) && content.length > 0 && content.every((part) => typeof part?.text === "string");
  return isText ? content.map((part) => part.text).join("") : null;
}
