/** The weights and schedules of the reward, and their changes. */

import { card, empty, h, replaceContent, scrolled, tableOf } from "./dom.js";
import { request, requestJson } from "./source.js";
import { statusNote } from "./status.js";
import { roundStep } from "./table.js";
import { folded, code, inline, number } from "./text.js";

/** @typedef {Record<string, any>} Config */

const LISTS = { per_turn: "each step", episode_end: "the end" };

/** The reward configuration of the server, which sliders change. */
export class Weights extends HTMLElement {
  /** @type {Config} */ #config = {};
  /** @type {Map<string, number>} */ #steps = new Map(); // of the sliders, whose ends stay where they are
  #status = statusNote();
  #table = h("div.body");
  #changes = h("div.body");
  #progress = h("span.muted");
  #changed = Promise.resolve(); // once the changes so far were sent: each is based on the one before

  /** Loads the configuration and its changes. */
  async show() {
    const [config, changes] = await Promise.all([requestJson("../config"), requestJson("../config/audit")]);
    this.#config = config;
    const { episode, training_step: step, stage } = config.progress;
    replaceContent(this.#progress, `${episode} episodes, training step ${step}`, stage && inline(`, stage ${stage}`, 80));
    this.#showEntries(config);
    this.#showChanges(changes);
    if (this.childElementCount) return;
    this.append(this.#status,
      card("weights", "Weights", this.#progress, this.#table),
      card("changes", "Changes", null, this.#changes));
  }

  /** @param {Config} config */
  #showEntries(config) {
    const effective = new Map(config.tree.map((/** @type {Config} */ each) => [each.path, each.weight]));
    const lines = Object.entries(LISTS).flatMap(([list, when]) =>
      (config[list] ?? []).map((/** @type {Config} */ entry) => this.#entryLine(entry, when, effective.get(entry.name))));
    const titles = ["reward", "scored at", "schedule", "weight", "now"];
    replaceContent(this.#table, tableOf("entries", titles, 3, lines, "The reward has no weights."),
      h("p.about", {}, "A change applies to the episodes that begin after it: reset to use it. “Now” is the weight with its schedule."));
  }

  /** @param {Config} entry @param {string} when @param {number | undefined} effective */
  #entryLine({ name, rubric, weight, schedule, config }, when, effective) {
    const known = this.#steps.get(name) ?? 0;
    const step = 100 * known >= Math.abs(weight) && known ? known : roundStep(Math.max(1, 2 * Math.abs(weight)) / 100);
    this.#steps.set(name, step);
    const ends = { min: weight < 0 ? -100 * step : 0, max: 100 * step, value: weight };
    const change = () => {
      if (Number.isFinite(exact.valueAsNumber)) this.#change(name, exact.valueAsNumber);
      else exact.value = String(weight); // nothing was typed, or no number
    };
    const exact = h("input", {
      type: "number", step: "any", ...ends, "aria-label": `weight of ${name}`, "data-key": `number ${name}`, onchange: change,
    });
    const slider = h("input", {
      type: "range", step, ...ends, "aria-label": `slider of the weight of ${name}`, "data-key": `range ${name}`,
      oninput: () => (exact.value = slider.value), onchange: change,
    });
    const isEmpty = !Object.keys(config ?? {}).length;
    const title = [h("b", {}, inline(name, 60)), h("p.about", {}, inline(rubric, 80)),
      isEmpty ? null : folded("configuration", () => code(JSON.stringify(config, null, 2)))];
    return [title, when, schedule ? code(JSON.stringify(schedule)) : h("span.muted", {}, "none"),
      h("span.setting", {}, slider, exact), number(effective ?? weight)];
  }

  /** @param {Config[]} changes */
  #showChanges(changes) {
    const lines = changes.toReversed().flatMap(({ when, by, changes: values }) =>
      values.map((/** @type {Config} */ { what, from, to }) =>
        [new Date(when).toLocaleString(), inline(by, 60), inline(what, 100), inline(from, 60), inline(to, 60)]));
    replaceContent(this.#changes, lines.length
      ? scrolled("wide", "Changes", tableOf("audit", ["when", "by", "what", "from", "to"], 3, lines))
      : empty("Nothing was changed since the server started."));
  }

  /** @param {string} name @param {number} weight */
  #change(name, weight) {
    const body = JSON.stringify({ weights: { [name]: weight }, by: "the page at /web" });
    const send = () => {
      const headers = { "content-type": "application/json", "if-match": `"${this.#config.version}"` };
      return request("../config", { method: "POST", headers, body });
    };
    this.#changed = this.#changed.then(() => this.#status.guard(send, "not changed"))
      .then(() => this.show()).catch((error) => this.#status.report(error));
  }
}
customElements.define("g-weights", Weights);
