/** Playing an environment: its forms, what it answers, and the reward of each step. */

import { card, choice, empty, h, replaceContent } from "./dom.js";
import { Episode, contentOf, metadataOf } from "./episode.js";
import { FormError, fieldsOf, resolved, sendForm } from "./form.js";
import { fieldsView } from "./observation.js";
import { greatest, markStep, messagesView, numbersView } from "./rollout.js";
import { AnswerError, Session } from "./session.js";
import { failureNote } from "./status.js";
import { code, count, folded, inline, number } from "./text.js";
import { treeView } from "./tree.js";

/** @typedef {import("./form.js").Schema} Schema */
/** @typedef {{name: string, about?: string, schema: Schema, action: (fields: any) => any}} Kind A kind of action. */

/** @type {Schema} Of the form of a reset; `arguments` are further ones of the environment. */
const RESET = {
  type: "object",
  properties: {
    seed: { type: "integer", minimum: 0, description: "random by default" },
    episode_id: { type: "string", maxLength: 255, description: "random by default" },
    arguments: { type: "object", description: "of the environment's reset" },
  },
};

/** A session with the environment, and its current episode. */
export class Player extends HTMLElement {
  /** @type {Schema} */ #schema;
  /** @type {import("./status.js").Status} */ #status;
  #session = new Session();
  /** @type {Episode | null} */ #episode = null;
  #selected = -1; // the step that is shown; -1 is the reset
  /** @type {Kind[]} */ #kinds = [];
  #chosen = ""; // the name of the kind of action that was chosen last
  /** @type {import("./form.js").Control | null} */ #fields = null;
  #resetFields = fieldsOf(RESET);
  #isBusy = false;
  /** The state of the connection, for the bar. */
  connection = h("div.connection", { role: "status" });
  #summary = h("span.controls");
  #now = h("div.body");
  #stepForm = h("form.action", { novalidate: true });
  #resetForm = h("form.reset", { novalidate: true });
  #tree = h("div.body");
  #downloadButton = h("button", { onclick: () => this.#download() }, "Download as a rollout");
  #transcript = h("div.body");

  /** @param {Schema} schema Of actions. @param {import("./status.js").Status} status Shows failures. */
  constructor(schema, status) {
    super();
    this.#schema = schema;
    this.#status = status;
    this.#listen(this.#resetForm, () => this.#reset());
    this.#listen(this.#stepForm, () => this.#step());
    // Leaving the page ends its session; a page that is kept by the browser can connect again.
    window.addEventListener("pagehide", () => this.#session.close());
    this.#session.addEventListener("change", () => {
      this.#showConnection();
      const { isOpen, reason } = this.#session;
      if (isOpen) this.#status.replaceChildren();
      else if (reason !== "connecting") this.#status.report(reason, "not connected");
    });
    this.#session.open();
  }

  connectedCallback() {
    if (this.childElementCount) return;
    this.#resetForm.append(this.#resetFields.element, h("button.primary", { type: "submit" }, "Reset"));
    this.append(
      card("now", "Observation", this.#summary, this.#now),
      h("aside.side", { "aria-label": "Action and reward" },
        card("reset", "Episode", null, this.#resetForm), card("action", "Action", null, this.#stepForm),
        card("step-reward", "Reward", null, this.#tree)),
      card("past", "Transcript", h("span.controls", {}, this.#downloadButton), this.#transcript));
    this.#showKinds([]);
    this.#showEpisode();
  }

  /** @param {string} name Submits the form "action", or "reset", if it is on the page. */
  submit(name) {
    const form = this.isConnected ? this.querySelector(`form.${name}`) : null;
    /** @type {HTMLFormElement | null} */ (form)?.requestSubmit();
  }

  /** @param {HTMLFormElement} form @param {() => Promise<void>} send */
  #listen(form, send) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (this.#isBusy) return;
      this.#setBusy(true);
      await this.#status.guard(() => sendForm(form, send));
      this.#setBusy(false);
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
  }

  /** @param {boolean} isBusy */
  #setBusy(isBusy) {
    this.#isBusy = isBusy;
    this.#showConnection();
  }

  get #canStep() {
    return this.#session.isOpen && this.#episode !== null && !this.#episode.hasEnded;
  }

  // Playing ----------------------------------------------------------------------------------------

  async #reset() {
    const { arguments: more = {}, episode_id: id = randomId(), seed } = this.#resetFields.read();
    if (Object(more) !== more || Array.isArray(more)) throw new FormError(["arguments"], "must be a JSON object");
    const first = await this.#session.ask("reset", { ...more, seed, episode_id: id });
    const tools = await this.#tools();
    this.#episode = new Episode(first, { seed: seed ?? null, id, columns: more });
    this.#selected = -1;
    this.#showKinds(tools);
    this.#showTranscript();
    this.#showEpisode();
  }

  async #step() {
    const episode = this.#episode;
    if (!episode || !this.#canStep || !this.#fields) return;
    const action = this.#kind.action(this.#fields.read());
    try {
      episode.add(action, await this.#session.ask("step", action));
    } catch (error) {
      const isTaken = !(error instanceof AnswerError) || error.code === "EXECUTION_ERROR";
      if (isTaken) episode.add(action, null, /** @type {Error} */ (error).message);
      else throw error;
    }
    if (!episode.hasEnded) this.#showKinds(await this.#tools());
    this.#selected = episode.steps.length - 1;
    this.#showTranscript();
    this.#showEpisode();
  }

  /** The tools, which may be others after each step. */
  async #tools() {
    const request = { jsonrpc: "2.0", id: 1, method: "tools/list", params: {} };
    try {
      const { result } = await this.#session.ask("mcp", request);
      return result?.tools ?? [];
    } catch {
      return []; // the connection was lost, which is shown beside the theme
    }
  }

  /** @param {any[]} tools */
  #showKinds(tools) {
    const { oneOf = [], $defs } = this.#schema;
    const kindOf = (/** @type {Schema} */ schema) => {
      const { properties: { metadata: _, ...properties } = {}, ...own } = resolved(schema, this.#schema);
      return { name: properties.type?.const ?? own.title ?? "action", schema: { ...own, properties, $defs }, action: (/** @type {any} */ given) => given };
    };
    const others = oneOf.map(kindOf).filter((/** @type {Kind} */ { name }) => !["call_tool", "list_tools"].includes(name));
    this.#kinds = tools.length ? [...tools.map(toolKind), ...others] : [kindOf(this.#schema)];
    this.#showForm();
  }

  get #kind() {
    return this.#kinds.find(({ name }) => name === this.#chosen) ?? this.#kinds[0];
  }

  #showForm() {
    const kind = this.#kind;
    const hadFocus = this.#stepForm.contains(document.activeElement);
    const choose = (/** @type {string} */ name) => {
      this.#chosen = name;
      this.#showForm();
    };
    this.#fields = fieldsOf(kind.schema);
    replaceContent(this.#stepForm,
      this.#kinds.length > 1 && choice("What to do", this.#kinds.map(({ name }) => name), kind.name, choose),
      kind.about ? h("p.about", {}, inline(kind.about, 400)) : null,
      this.#fields.element,
      h("button.primary", { type: "submit", "data-key": "step" }, "Step"));
    const first = this.#fields.element.querySelector("input, select, textarea");
    if (hadFocus && first && !this.#stepForm.contains(document.activeElement)) /** @type {HTMLElement} */ (first).focus();
    this.#showConnection();
  }

  #download() {
    const row = JSON.stringify(this.#episode?.row);
    const address = URL.createObjectURL(new Blob([`${row}\n`], { type: "application/jsonl" }));
    h("a", { href: address, download: "rollout.jsonl" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  // Showing ----------------------------------------------------------------------------------------

  #showTranscript() {
    const { messages, numbers, firstTurn } = /** @type {Episode} */ (this.#episode);
    replaceContent(this.#transcript, messagesView(messages, numbers, (turn) => {
      this.#selected = Math.max(turn - firstTurn, -1);
      this.#showEpisode();
    }));
  }

  #showEpisode() {
    const episode = this.#episode;
    const data = episode && (this.#selected < 0 ? episode.first : episode.steps[this.#selected].data);
    replaceContent(this.#summary, episode && summaryOf(episode, this.#selected));
    const { reward_tree: _, reward_error: __, ...metadata } = data ? metadataOf(data) : {};
    const error = episode && this.#selected >= 0 ? episode.steps[this.#selected].error : null;
    replaceContent(this.#now, error !== null && failureNote(error), ...(data ? [
      fieldsView(contentOf(data)),
      Object.keys(metadata).length > 0 && folded("metadata", () => code(JSON.stringify(metadata, null, 2))),
    ] : [!episode && empty("Reset to begin an episode.")]));
    markStep(this.#transcript, (episode?.firstTurn ?? 0) + this.#selected);
    this.#showReward();
    this.#showConnection();
  }

  #showReward() {
    const episode = this.#episode;
    const step = episode?.steps[this.#selected];
    if (!episode || !step) return replaceContent(this.#tree, empty("The reward of a step is shown after it."));
    const [failure, { numbers }] = [episode.failure(this.#selected), episode];
    const tree = step.data && metadataOf(step.data).reward_tree;
    replaceContent(this.#tree, ...(tree ? [treeView(tree)] : [
      numbersView(numbers[episode.firstTurn + this.#selected], greatest(numbers)),
      failure ? failureNote(failure) : h("p.about", {}, "The server has sent no tree of rubrics."),
    ]));
  }

  #showConnection() {
    const { isOpen, reason } = this.#session;
    const isConnecting = reason === "connecting";
    const state = isOpen ? (this.#isBusy ? "waiting" : "connected") : "connecting";
    replaceContent(this.connection, ...(isOpen || isConnecting ? [h("span.muted", {}, state)] : [
      h("span.tag.failed", {}, "not connected"),
      h("button", { "data-key": "reconnect", onclick: () => this.#session.open() }, "Reconnect"),
    ]));
    if (!isOpen && this.#episode) this.#episode.isLost = true;
    this.#stepForm.querySelector("[type=submit]")?.toggleAttribute("disabled", this.#isBusy || !this.#canStep);
    this.#resetForm.querySelector("[type=submit]")?.toggleAttribute("disabled", this.#isBusy || !isOpen);
    this.#downloadButton.toggleAttribute("disabled", !this.#episode?.steps.length);
  }
}
customElements.define("g-player", Player);

/** @param {Episode} episode @param {number} selected @returns {HTMLElement} */
function summaryOf(episode, selected) {
  const valid = episode.rewards.filter((each) => each !== null);
  const sum = valid.reduce((total, each) => total + each, 0);
  const failed = episode.steps.filter((_, place) => episode.failure(place) !== null).length;
  const { data } = episode.steps[selected] ?? { data: episode.first };
  const place = selected < 0 ? "after the reset" : `step ${selected} · ${count(episode.steps.length)} taken`;
  return h("span.summary", {}, h("span.muted", {}, place),
    valid.length > 0 && h("span", {}, "sum of rewards ", h("b", {}, number(sum))),
    failed > 0 && h("span.tag.failed", {}, `${count(failed)} failed`),
    data && metadataOf(data).agent && h("span", {}, "next: ", inline(metadataOf(data).agent, 40)),
    episode.isDone && h("span.tag.done", {}, "done"));
}

/** @param {any} tool @returns {Kind} */
function toolKind({ name, description: about, input_schema: schema }) {
  return { name, about, schema, action: (given) => ({ type: "call_tool", tool_name: name, arguments: given }) };
}

/** @returns {string} An id of 16 digits; `crypto.randomUUID` is missing where the page is served without TLS. */
function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(8))].map((each) => each.toString(16).padStart(2, "0")).join("");
}
