/** The page of a served environment: playing it by hand, its reward, and the server. */

import { card, choice, empty, h, replaceContent } from "./dom.js";
import { Episode, contentOf, metadataOf } from "./episode.js";
import { FormError, fieldsOf, parsed, showProblems } from "./form.js";
import { listenToKeys } from "./keys.js";
import { Live } from "./live.js";
import { fieldsView } from "./observation.js";
import { messageView, numbersView } from "./rollout.js";
import { AnswerError, Session } from "./session.js";
import { code, count, folded, inline, number, prose } from "./text.js";
import { themeButton } from "./theme.js";
import { treeView } from "./tree.js";
import { Weights, asked } from "./weights.js";

/** @typedef {import("./form.js").Schema} Schema */
/** @typedef {{name: string, about?: string, schema: Schema, action: (fields: any) => any}} Kind A kind of action. */

const TABS = /** @type {Record<string, string>} */ ({ play: "Play", reward: "Reward", server: "Server" });

/** The whole page. */
export class Play extends HTMLElement {
  #session = new Session();
  /** @type {Episode | null} */ #episode = null;
  #selected = -1; // the step that is shown; -1 is the reset
  /** @type {Schema} */ #schema = {};
  /** @type {Kind[]} */ #kinds = [];
  #chosen = ""; // the name of the kind of action that was chosen last
  /** @type {import("./form.js").Control | null} */ #fields = null;
  #isBusy = false;
  /** @type {HTMLElement[]} */ #besides = [];
  #weights = new Weights();
  #live = new Live();

  #tabs = h("nav.tabs", { "aria-label": "Views" });
  #connection = h("div.connection", { role: "status" });
  #main = h("main", { tabindex: "-1" });
  #status = h("div.status", { role: "status" });
  #now = card("now", "Observation", h("span.controls"), h("div.body"));
  #stepForm = h("form.action", { novalidate: true });
  #resetForm = h("form.reset", { novalidate: true });
  #tree = h("div.body");
  #transcript = h("ol.messages");
  #play = h("div.play");

  async connectedCallback() {
    const loaded = [asked("metadata"), asked("schema")];
    const theme = themeButton();
    this.append(this.#status);
    await this.#guarded(async () => {
      const [{ name }, { action }] = await Promise.all(loaded);
      this.#schema = action;
      document.title = `${name} – guerdon`;
      const [brand, title] = [h("span.brand", {}, "guerdon"), h("span.file", {}, inline(name, 60))];
      const help = listenToKeys(this.#shortcuts());
      this.prepend(h("header.bar", {}, brand, title, this.#tabs, this.#connection, theme, help), this.#main);
      this.#build();
      this.#showKinds([]);
      this.#begin();
    });
  }

  #begin() {
    window.addEventListener("hashchange", () => this.#showTab());
    // Leaving the page ends its session; a page that is kept by the browser can connect again.
    window.addEventListener("pagehide", () => this.#session.close());
    this.#session.addEventListener("change", () => this.#showConnection());
    this.#session.open();
    this.#showTab();
  }

  #build() {
    const field = (/** @type {string} */ label, /** @type {string} */ name, /** @type {Record<string, any>} */ more) =>
      h("div.field", { "data-path": JSON.stringify([name]) }, h("label", { for: name }, label),
        h(name === "arguments" ? "textarea" : "input", { id: name, autocomplete: "off", ...more }), h("p.error", { role: "alert" }));
    this.#resetForm.append(
      h("div.pair", {},
        field("seed", "seed", { type: "number", min: 0, step: 1, placeholder: "random" }),
        field("episode id", "episode_id", { maxlength: 255, placeholder: "random" })),
      folded("further arguments", () => field("JSON object", "arguments", { rows: 2, placeholder: '{"split": "train"}' })),
      h("button.primary", { type: "submit" }, "Reset"));
    this.#listen(this.#resetForm, () => this.#reset());
    this.#listen(this.#stepForm, () => this.#step());
    const download = h("button", { onclick: () => this.#download() }, "Download as a rollout");
    const title = { "aria-label": "Action and reward" };
    this.#play.append(
      this.#now,
      h("aside.side", title, card("reset", "Episode", null, this.#resetForm), card("action", "Action", null, this.#stepForm),
        card("step-reward", "Reward", null, this.#tree)),
      card("past", "Transcript", h("span.controls", {}, download), this.#transcript));
    this.#showEpisode();
  }

  /** @param {HTMLElement} form @param {() => Promise<void>} send */
  #listen(form, send) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (this.#isBusy) return;
      this.#setBusy(true);
      await this.#guarded(send, form);
      this.#setBusy(false);
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) /** @type {HTMLFormElement} */ (form).requestSubmit();
    });
  }

  /** @param {boolean} isBusy */
  #setBusy(isBusy) {
    this.#isBusy = isBusy;
    this.#showConnection();
  }

  // Playing ----------------------------------------------------------------------------------------

  async #reset() {
    const value = (/** @type {string} */ id) =>
      /** @type {HTMLInputElement | null} */ (this.#resetForm.querySelector(`#${id}`))?.value.trim() ?? "";
    const more = value("arguments") ? parsed(value("arguments"), ["arguments"]) : {};
    if (typeof more !== "object" || more === null || Array.isArray(more)) throw new FormError(["arguments"], "must be a JSON object");
    const seed = value("seed") === "" ? null : Number(value("seed"));
    const id = value("episode_id") || randomId();
    const first = await this.#session.ask("reset", { ...more, ...(seed === null ? {} : { seed }), episode_id: id });
    const tools = await this.#tools();
    this.#episode = new Episode(first, { seed, id });
    this.#selected = -1;
    this.#besides = [];
    replaceContent(this.#transcript, entry("reset", fieldsView(contentOf(first), true)));
    this.#showKinds(tools);
    this.#showEpisode();
  }

  async #step() {
    const episode = this.#episode;
    if (!episode || episode.hasEnded || !this.#fields) return;
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
    this.#addStep(this.#selected);
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
    const { oneOf, $defs = {} } = this.#schema;
    const others = (oneOf ?? []).map((/** @type {Schema} */ each) => $defs[each.$ref?.split("/").pop()]).filter((/** @type {Schema} */ each) =>
      !["call_tool", "list_tools"].includes(each?.properties?.type?.const));
    const schemas = tools.length ? others : oneOf ? [...others, this.#schema] : [this.#schema];
    this.#kinds = [
      ...tools.map(({ name, description: about, input_schema: schema }) => ({
        name, about, schema, action: (/** @type {any} */ given) => ({ type: "call_tool", tool_name: name, arguments: given }),
      })),
      ...schemas.map((/** @type {Schema} */ each) => ({
        name: each.properties?.type?.const ?? each.title ?? "action", schema: { $defs, ...each }, action: (/** @type {any} */ given) => given,
      })),
    ];
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
    if (!this.#episode?.steps.length) return;
    const address = URL.createObjectURL(new Blob([`${JSON.stringify(this.#episode.row)}\n`], { type: "application/jsonl" }));
    h("a", { href: address, download: "rollout.jsonl" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  // Showing ----------------------------------------------------------------------------------------

  /** @param {number} place */
  #addStep(place) {
    const episode = /** @type {Episode} */ (this.#episode);
    const { action, data, error } = episode.steps[place];
    const beside = h("button.beside", {
      "data-step": place, title: "Show the observation and the rubrics of this step",
      onclick: () => {
        this.#selected = place;
        this.#showEpisode();
      },
    });
    this.#besides.push(beside);
    const calls = episode.messages.filter(({ role }) => role === "assistant").at(-1)?.tool_calls;
    const message = { role: "assistant", content: null, tool_calls: calls };
    this.#transcript.append(
      h("li.turn", {}, calls ? messageView(message) : article("assistant", "action", fieldsView(action, true)), beside),
      error === null && data ? entry(`step ${place}`, fieldsView(contentOf(data), true)) : entry("failed", failureView(error ?? "")));
  }

  #showEpisode() {
    const episode = this.#episode;
    const data = episode && (this.#selected < 0 ? episode.first : episode.steps[this.#selected].data);
    const [aside, body] = [this.#now.querySelector(".controls"), this.#now.querySelector(".body")];
    replaceContent(/** @type {Element} */ (aside), episode && summaryOf(episode, this.#selected));
    const { reward_tree: _, reward_error: __, ...metadata } = data ? metadataOf(data) : {};
    const error = episode && this.#selected >= 0 ? episode.steps[this.#selected].error : null;
    replaceContent(/** @type {Element} */ (body), error !== null && failureView(error), ...(data ? [
      fieldsView(contentOf(data)),
      Object.keys(metadata).length > 0 && folded("metadata", () => code(JSON.stringify(metadata, null, 2))),
    ] : [!episode && empty("Reset to begin an episode.")]));
    this.#besides.forEach((beside, place) => {
      beside.classList.toggle("current", place === this.#selected);
      beside.setAttribute("aria-pressed", String(place === this.#selected));
      replaceContent(beside, h("span.step-name", {}, `step ${place}`), this.#numbers(place));
    });
    this.#showReward();
    this.#showConnection();
  }

  /** @param {number} place */
  #numbers(place) {
    const episode = /** @type {Episode} */ (this.#episode);
    const most = Math.max(1e-9, ...episode.rewards.map((each) => Math.abs(each ?? 0)));
    return numbersView({ index: place, reward: episode.rewards[place], advantage: null, return_: null, anchor: null, reason: null,
      isFailed: episode.failure(place) !== null }, most);
  }

  #showReward() {
    const step = this.#episode?.steps[this.#selected];
    const failure = step && this.#episode?.failure(this.#selected);
    const tree = step?.data && metadataOf(step.data).reward_tree;
    replaceContent(this.#tree, ...(tree ? [treeView(tree)] : step ? [
      this.#numbers(this.#selected), failure ? failureView(failure) : h("p.about", {}, "The server has sent no tree of rubrics."),
    ] : [empty("The reward of a step is shown after it.")]));
  }

  #showConnection() {
    const { isOpen, reason } = this.#session;
    const isConnecting = reason === "connecting";
    const state = isOpen ? (this.#isBusy ? "waiting" : "connected") : "connecting";
    replaceContent(this.#connection, ...(isOpen || isConnecting ? [h("span.muted", {}, state)] : [
      h("span.tag.failed", { title: reason }, "not connected"),
      h("button", { "data-key": "reconnect", onclick: () => this.#reconnect() }, "Reconnect"),
    ]));
    const canStep = isOpen && !this.#isBusy && this.#episode !== null && !this.#episode.hasEnded;
    this.#stepForm.querySelector("[type=submit]")?.toggleAttribute("disabled", !canStep);
    this.#resetForm.querySelector("[type=submit]")?.toggleAttribute("disabled", !isOpen || this.#isBusy);
  }

  #reconnect() {
    if (this.#episode && !this.#episode.hasEnded) this.#note(new Error("A new session has a new environment: reset to play."));
    this.#session.open();
  }

  #showTab() {
    const wanted = location.hash.slice(1);
    const tab = wanted in TABS ? wanted : "play";
    replaceContent(this.#tabs, ...Object.entries(TABS).map(([name, title]) =>
      h("a", { href: `#${name}`, "data-key": name, "aria-current": name === tab ? "page" : null }, title)));
    const view = { play: this.#play, reward: this.#weights, server: this.#live }[tab];
    this.#main.replaceChildren(/** @type {HTMLElement} */ (view));
    this.#main.dataset.view = tab;
    if (tab === "reward") this.#guarded(() => this.#weights.show());
  }

  /**
   * @param {() => Promise<unknown>} task Its failure is shown: at the fields of the form that it is about, or on the page.
   * @param {HTMLElement} [form]
   */
  async #guarded(task, form) {
    if (form) showProblems(form, []);
    this.#status.replaceChildren();
    try {
      await task();
    } catch (error) {
      const problems = /** @type {AnswerError} */ (error).errors ?? [];
      if (!form || !problems.length || showProblems(form, problems).length) this.#note(/** @type {Error} */ (error));
    }
  }

  /** @param {Error} error */
  #note({ message }) {
    this.#status.replaceChildren(h("p.note.is-failed", {}, inline(message, 1000)));
  }

  #shortcuts() {
    const submit = (/** @type {HTMLElement} */ form) => () => /** @type {HTMLFormElement} */ (form).requestSubmit();
    const open = (/** @type {string} */ tab) => () => {
      location.hash = tab;
    };
    return [
      { key: "Enter", about: "take the step (ctrl-Enter in a text of several lines)", run: submit(this.#stepForm) },
      { key: "r", about: "reset", run: submit(this.#resetForm) },
      { key: "p", about: "play", run: open("play") },
      { key: "w", about: "weights of the reward", run: open("reward") },
      { key: "s", about: "the server", run: open("server") },
      { key: "Escape", about: "leave a field", run: () => /** @type {HTMLElement} */ (document.activeElement)?.blur() },
    ];
  }
}
customElements.define("g-play", Play);

/** @param {string} role @param {string} title @param {HTMLElement} content */
function article(role, title, content) {
  return h(`article.message.${role}`, {}, h("header", {}, h("span.role", {}, title)), content);
}

/** @param {string} title @param {HTMLElement} content @returns {HTMLElement} What the environment has answered. */
function entry(title, content) {
  const isSpoken = content.querySelector(".message") !== null;
  return h("li", {}, isSpoken ? content : article("user", title, content));
}

/** @param {string} error */
function failureView(error) {
  return h("p.note.is-failed", {}, h("b", {}, "failed: "), inline(error, 4000));
}

/** @param {Episode} episode @param {number} selected @returns {HTMLElement} */
function summaryOf(episode, selected) {
  const valid = episode.rewards.filter((each) => each !== null);
  const sum = valid.reduce((total, each) => total + each, 0);
  const failed = episode.steps.filter((_, place) => episode.failure(place) !== null).length;
  const { data } = episode.steps[selected] ?? { data: episode.first };
  const place = selected < 0 ? "after the reset" : `step ${selected} of ${count(episode.steps.length)}`;
  return h("span.summary", {}, h("span.muted", {}, place),
    valid.length > 0 && h("span", {}, "sum of rewards ", h("b", {}, number(sum))),
    failed > 0 && h("span.tag.failed", {}, `${count(failed)} failed`),
    data && metadataOf(data).agent && h("span", {}, "next: ", inline(metadataOf(data).agent, 40)),
    episode.isDone && h("span.tag.done", {}, "done"));
}

/** @returns {string} An id of 16 digits; `crypto.randomUUID` is missing where the page is served without TLS. */
function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(8))].map((each) => each.toString(16).padStart(2, "0")).join("");
}
