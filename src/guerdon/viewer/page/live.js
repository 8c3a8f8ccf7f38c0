/** The server's sessions and metrics as charts. */

import { card, h, replaceContent } from "./dom.js";
import { curves, plot, styleOf } from "./plots.js";
import { request } from "./source.js";
import { statusNote } from "./status.js";
import { brief, count } from "./text.js";

/** @typedef {{at: number, sessions: number, steps: number, seconds: number, failures: number}} Sample */
/** @typedef {{title: string, of: (sample: Sample, before: Sample) => number, text: (value: number) => string,
 *   color?: string}} Chart */

const EVERY = 2000; // milliseconds
const KEPT = 150; // samples

/** @type {Chart[]} */
const CHARTS = [
  { title: "Sessions", of: ({ sessions }) => sessions, text: count },
  { title: "Steps per second", of: (now, before) => (now.steps - before.steps) / (now.at - before.at), text: brief },
  { title: "Milliseconds per step", of: (now, before) => (1000 * (now.seconds - before.seconds)) / (now.steps - before.steps), text: brief },
  { title: "Failures", of: ({ failures }) => failures, text: count, color: "var(--failed)" },
];

/**
 * Reads Prometheus' text format.
 * @param {string} text
 * @returns {Map<string, number>} The sum of each metric over its labels.
 */
function totalsOf(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    const [, name, value] = /^(\w+)(?:\{.*\})? (\S+)$/.exec(line) ?? [];
    if (name) sums.set(name, (sums.get(name) ?? 0) + Number(value));
  }
  return sums;
}

/** The charts; they are updated as long as they are on the page. */
export class Live extends HTMLElement {
  /** @type {Sample[]} */ #samples = [];
  #timer = 0;
  #parts = CHARTS.map((chart) => ({ chart, picture: plot("chart"), last: h("span.last") }));
  #status = statusNote();

  connectedCallback() {
    this.replaceChildren(this.#status,
      h("div.curves", {}, ...this.#parts.map(({ chart, picture, last }) => card("chart-card", chart.title, last, picture))));
    this.#timer = setInterval(() => document.hidden || this.#sample(), EVERY);
    this.#sample();
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }

  async #sample() {
    await this.#status.guard(async () => {
      const metrics = totalsOf(await (await request("../metrics")).text());
      const sum = (/** @type {string} */ name) => metrics.get(`guerdon_${name}`) ?? 0;
      this.#samples.push({
        at: performance.now() / 1000, sessions: sum("sessions"), failures: sum("failures_total"),
        steps: sum("step_seconds_count"), seconds: sum("step_seconds_sum"),
      });
      this.#samples.splice(0, this.#samples.length - KEPT);
    }, "no metrics");
    for (const { chart, picture, last } of this.#parts) {
      const value = this.#values(chart).at(-1) ?? NaN;
      replaceContent(last, Number.isNaN(value) ? "–" : chart.text(value));
      picture.show(this.#drawn(chart));
    }
  }

  /** @param {Chart} chart */
  #values({ of }) {
    return this.#samples.slice(1).map((now, place) => of(now, this.#samples[place]));
  }

  /** @param {Chart} chart */
  #drawn(chart) {
    const y = this.#values(chart);
    const now = this.#samples.at(-1)?.at ?? 0;
    const x = this.#samples.slice(1).map(({ at }) => at - now);
    const most = Math.max(1, ...y.filter((value) => !Number.isNaN(value)));
    const within = /** @type {[number, number]} */ ([0, 1.1 * most]);
    // The axis has at least a minute, also at the beginning.
    const curve = { name: chart.title, color: chart.color ?? styleOf(0).color, x: [-60, ...x, 0], y: [NaN, ...y, NaN] };
    return curves([curve], { label: chart.title, xLabel: "seconds", within });
  }
}
customElements.define("g-live", Live);
