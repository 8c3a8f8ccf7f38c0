/** Plots: histograms, intervals, matrices, scatter plots and curves, in SVG and on canvas. */

import { h, replaceContent, svg, useArrowKeys } from "./dom.js";
import { extent, multiple, roundStep } from "./table.js";
import { brief, count } from "./text.js";

/** @typedef {(width: number, height: number) => Element[]} Draw */

/** Redraws its content when its width or the theme changes; its height is fixed by its class. */
export class Plot extends HTMLElement {
  /** @type {Draw} */ draw = () => [];
  #observer = new ResizeObserver(() => this.redraw());
  #scheme = matchMedia("(prefers-color-scheme: dark)");
  #redraw = () => this.redraw();

  connectedCallback() {
    this.#observer.observe(this);
    this.#scheme.addEventListener("change", this.#redraw);
    document.addEventListener("theme", this.#redraw);
  }

  disconnectedCallback() {
    this.#observer.disconnect();
    this.#scheme.removeEventListener("change", this.#redraw);
    document.removeEventListener("theme", this.#redraw);
  }

  redraw() {
    const { clientWidth, clientHeight } = this;
    if (clientWidth > 100) replaceContent(this, ...this.draw(clientWidth, clientHeight));
  }
}
customElements.define("g-plot", Plot);

/**
 * @param {string} shape A class that sets the height.
 * @param {Draw} draw
 * @returns {Plot}
 */
export function plot(shape, draw) {
  const element = /** @type {Plot} */ (h(`g-plot.${shape}`));
  element.draw = draw;
  return element;
}

// Scales -------------------------------------------------------------------------------------------

/** @typedef {{(value: number): number, domain: [number, number], ticks: number[]}} Scale */

/**
 * A linear scale; its ticks are at round numbers.
 * @param {[number, number]} domain
 * @param {[number, number]} range In pixels.
 * @param {number} [most] How many ticks.
 * @returns {Scale}
 */
export function scale(domain, range, most = 6) {
  let [low, high] = domain;
  if (!(high > low)) [low, high] = Number.isFinite(low) ? [low - 0.5, low + 0.5] : [0, 1];
  const of = (/** @type {number} */ value) =>
    range[0] + ((value - low) / (high - low)) * (range[1] - range[0]);
  const step = roundStep((high - low) / most);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n <= high / step + 1e-9; n++) ticks.push(multiple(n, step));
  return Object.assign(of, { domain: /** @type {[number, number]} */ ([low, high]), ticks });
}

/**
 * Axes with light grid lines.
 * @param {Scale} x
 * @param {Scale} y
 * @param {{left: number, right: number, top: number, bottom: number}} box In pixels.
 * @returns {SVGElement}
 */
export function axes(x, y, box) {
  const group = svg("g.axes", { "aria-hidden": "true" });
  for (const tick of y.ticks) {
    const at = Math.round(y(tick)) + 0.5;
    group.append(
      svg("line", { x1: box.left, x2: box.right, y1: at, y2: at }),
      svg("text", { x: box.left - 6, y: at + 3.5, "text-anchor": "end" }, brief(tick)),
    );
  }
  for (const tick of x.ticks) {
    const at = x(tick);
    group.append(svg("text", { x: at, y: box.bottom + 15, "text-anchor": "middle" }, brief(tick)));
  }
  return group;
}

/** @param {string} name A variable of the style sheet. @returns {[number, number, number]} */
export function colorOf(name) {
  const probe = h("span", { style: { color: `var(${name})` } });
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return /** @type {[number, number, number]} */ ((color.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number));
}

/**
 * The colour of a signed number: blue above 0, orange below, the more the further from 0.
 * @param {number | null | undefined} value
 * @param {number} greatest The value of the strongest colour.
 * @param {number} [strongest] In percent.
 * @returns {string}
 */
export function signedColor(value, greatest, strongest = 100) {
  if (value === null || value === undefined || Number.isNaN(value)) return "transparent";
  const share = greatest > 0 ? Math.min(Math.abs(value) / greatest, 1) : 0;
  const hue = value < 0 ? "--negative" : "--positive";
  return `color-mix(in oklab, var(${hue}) ${(share * strongest).toFixed(1)}%, var(--neutral))`;
}

/**
 * A bar from the middle of its box: to the right if the number is positive, else to the left.
 * @param {number | null} value
 * @param {number} most The number whose bar fills its half.
 * @returns {HTMLElement}
 */
export function gauge(value, most) {
  const half = (50 * Math.abs(value ?? 0)) / most;
  const left = (value ?? 0) < 0 ? 50 - half : 50;
  const style = { left: `${left}%`, width: `${half}%`, background: signedColor(value, most) };
  return h("span.gauge", { "aria-hidden": "true" }, h("i", { style }));
}

// Histogram ----------------------------------------------------------------------------------------

/**
 * @typedef {{label: string, title: string, text: string, count: number, total: number,
 *   kind: "bar" | "zero" | "none" | "failed", isChosen: boolean}} Bar `text` is the filter.
 */

/**
 * The bars of a column's histogram.
 * @param {import("./table.js").Binned} binned
 * @param {Int32Array} rows The rows shown.
 * @param {string} name What the numbers are.
 * @param {string[]} chosen The filters of the column.
 * @returns {Bar[]}
 */
export function barsOf(binned, rows, name, chosen) {
  const counts = binned.count(rows);
  return binned.bins.map(({ low, high, text }, place) => ({
    label: brief(low), title: low === high ? `${name} is ${low}` : `${name} in ${text}`, text,
    count: counts[place], total: binned.whole[place], isChosen: chosen.includes(text),
    kind: low === 0 && high === 0 ? "zero" : "bar",
  }));
}

/**
 * A histogram whose bars are buttons: the rows shown in front of all rows.
 * @param {Bar[]} bars
 * @param {{label: string, isScale: boolean, choose: (text: string, isAdded: boolean) => void}} options
 *   `isScale`: the bars are intervals, whose edges are labelled.
 * @returns {Draw}
 */
export function histogram(bars, { label, isScale, choose }) {
  return (width, height) => {
    const apart = bars.filter((bar) => bar.kind === "failed" || bar.kind === "none").length;
    const box = { left: 48, right: width - 4, top: 16, bottom: height - 22 };
    const gap = apart ? 18 : 0;
    const slot = (box.right - box.left - gap) / Math.max(bars.length, 4);
    const most = Math.max(1, ...bars.map((bar) => bar.total));
    const y = scale([0, most], [box.bottom, box.top], 4);
    const x = scale([0, 1], [box.left, box.right]);
    x.ticks = [];
    const group = svg("g", { role: "group", "aria-label": label });
    const room = Math.max(1, Math.ceil(44 / slot));
    bars.forEach((bar, place) => {
      const left = box.left + place * slot + (place >= bars.length - apart ? gap : 0);
      group.append(barOf(bar, { left, slot, y, bottom: box.bottom, choose }));
      const isEdge = isScale && bar.kind === "bar";
      if (bar.kind !== "bar" || place % room === 0 || slot > 44) {
        const at = isEdge ? left : left + slot / 2;
        const isCrowded = isEdge && bars.some((each, other) => each.kind === "zero" && Math.abs(other - place) < room);
        if (!isCrowded) group.append(labelOf(bar.label, at, height - 6));
      }
    });
    useArrowKeys(group, ".bar");
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, axes(x, y, box), group);
    return [picture];
  };
}

/** @param {string} label @param {number} x @param {number} y */
function labelOf(label, x, y) {
  return svg("text.tick", { x, y, "text-anchor": "middle", "aria-hidden": "true" }, label);
}

/**
 * @param {Bar} bar
 * @param {{left: number, slot: number, y: Scale, bottom: number,
 *   choose: (text: string, isAdded: boolean) => void}} place
 */
function barOf(bar, { left, slot, y, bottom, choose }) {
  const inset = Math.min(slot * 0.12, 3);
  const wide = Math.min(slot - 2 * inset, 120);
  const start = left + (slot - wide) / 2;
  const rectangle = (/** @type {string} */ kind, /** @type {number} */ amount) => {
    const high = amount ? Math.max(bottom - y(amount), 1.5) : 0;
    return svg(`rect.${kind}`, { x: start, width: wide, y: bottom - high, height: high, rx: Math.min(2, high / 2) });
  };
  const activate = (/** @type {Event} */ event) => {
    const { shiftKey, ctrlKey, metaKey } = /** @type {MouseEvent} */ (event);
    choose(bar.text, shiftKey || ctrlKey || metaKey);
  };
  return svg(
    `g.bar.${bar.kind}${bar.isChosen ? ".chosen" : ""}`,
    {
      role: "button",
      "aria-pressed": bar.isChosen,
      "aria-label": `${bar.title}: ${count(bar.count)} of ${count(bar.total)} rows`,
      "data-key": `bar ${bar.text}`,
      onclick: activate,
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        activate(event);
      },
    },
    svg("title", {}, `${bar.title}: ${count(bar.count)} of ${count(bar.total)} rows`),
    svg("rect.hit", { x: left, y: 0, width: slot, height: bottom }),
    rectangle("whole", bar.total),
    rectangle("part", bar.count),
    slot > 34 && bar.total > 0 &&
      svg("text.amount", { x: left + slot / 2, y: y(bar.total) - 4, "text-anchor": "middle" }, count(bar.count)),
  );
}

// Scatter ------------------------------------------------------------------------------------------

/**
 * @typedef {{x: Float64Array, y: Float64Array, rows: Int32Array, xLabel: string, yLabel: string,
 *   isSquare?: boolean, choose: (x: string, y: string) => void,
 *   domains: [[number, number], [number, number]]}} ScatterOptions
 *   `isSquare` draws the diagonal; `choose` receives the intervals of a dragged rectangle.
 */

/**
 * A scatter plot of any number of points: where many lie on each other, the colour is stronger.
 * @param {ScatterOptions} options
 * @returns {Draw}
 */
export function scatter(options) {
  return (width, height) => {
    const box = { left: 46, right: width - 8, top: 8, bottom: height - 34 };
    const x = scale(padded(options.domains[0]), [box.left, box.right]);
    const y = scale(padded(options.domains[1]), [box.bottom, box.top]);
    const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { "aria-hidden": "true" }));
    const density = Math.min(devicePixelRatio, 2);
    [canvas.width, canvas.height] = [Math.round(width * density), Math.round(height * density)];
    drawPoints(canvas, options, (value) => x(value) * density, (value) => y(value) * density);
    const label = `${options.yLabel} over ${options.xLabel}, ${count(options.rows.length)} rows`;
    const middle = (box.top + box.bottom) / 2;
    const picture = svg(
      "svg.brush",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
      axes(x, y, box),
      options.isSquare && svg("line.diagonal", {
        x1: x(x.domain[0]), y1: y(x.domain[0]), x2: x(x.domain[1]), y2: y(x.domain[1]),
      }),
      svg("text.axis", { x: (box.left + box.right) / 2, y: height - 2, "text-anchor": "middle" }, options.xLabel),
      svg("text.axis", { transform: `translate(9 ${middle}) rotate(-90)`, "text-anchor": "middle" }, options.yLabel),
    );
    brush(picture, box, (left, right, top, bottom) => {
      const at = (/** @type {Scale} */ of, /** @type {number} */ share) =>
        Number((of.domain[0] + share * (of.domain[1] - of.domain[0])).toPrecision(4));
      const shareX = (/** @type {number} */ value) => (value - box.left) / (box.right - box.left);
      const shareY = (/** @type {number} */ value) => (box.bottom - value) / (box.bottom - box.top);
      options.choose(
        `[${at(x, shareX(left))},${at(x, shareX(right))}]`,
        `[${at(y, shareY(bottom))},${at(y, shareY(top))}]`,
      );
    });
    return [canvas, picture];
  };
}

/** @param {[number, number]} domain @returns {[number, number]} */
function padded([low, high]) {
  const room = (high - low) * 0.04 || 0.5;
  return [low - room, high + room];
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {ScatterOptions} options
 * @param {(value: number) => number} left
 * @param {(value: number) => number} top
 */
function drawPoints(canvas, { x, y, rows }, left, top) {
  const { width, height } = canvas;
  const size = rows.length > 20_000 ? 3 : rows.length > 2_000 ? 4 : 7;
  const amounts = new Float32Array(width * height);
  const radius = size / 2;
  for (const row of rows) {
    const a = left(x[row]);
    const b = top(y[row]);
    if (a !== a || b !== b) continue;
    const fromX = Math.round(a - radius);
    const fromY = Math.round(b - radius);
    for (let j = 0; j < size; j++) {
      for (let i = 0; i < size; i++) {
        const corner = (i - radius + 0.5) ** 2 + (j - radius + 0.5) ** 2;
        if (corner <= radius * radius) amounts[(fromY + j) * width + fromX + i]++;
      }
    }
  }
  let most = 0;
  for (const amount of amounts) if (amount > most) most = amount;
  const [red, green, blue] = colorOf("--accent");
  const image = new ImageData(width, height);
  const { data } = image;
  for (let place = 0; place < amounts.length; place++) {
    const amount = amounts[place];
    if (amount === 0) continue;
    const alpha = most > 1 ? 0.3 + (0.7 * Math.log1p(amount)) / Math.log1p(most) : 0.75;
    data[4 * place] = red;
    data[4 * place + 1] = green;
    data[4 * place + 2] = blue;
    data[4 * place + 3] = 255 * Math.min(alpha, 1);
  }
  canvas.getContext("2d")?.putImageData(image, 0, 0);
}

/**
 * Lets the pointer draw a rectangle.
 * @param {SVGElement} picture
 * @param {{left: number, right: number, top: number, bottom: number}} box
 * @param {(left: number, right: number, top: number, bottom: number) => void} done
 */
function brush(picture, box, done) {
  /** @type {[number, number] | null} */
  let start = null;
  const rectangle = svg("rect.selection", { width: 0, height: 0 });
  picture.append(rectangle);
  /** @param {PointerEvent} event @returns {[number, number]} */
  const place = (event) => {
    const { left, top } = picture.getBoundingClientRect();
    const clamp = (/** @type {number} */ value, /** @type {number} */ low, /** @type {number} */ high) =>
      Math.min(Math.max(value, low), high);
    return [
      clamp(event.clientX - left, box.left, box.right),
      clamp(event.clientY - top, box.top, box.bottom),
    ];
  };
  picture.addEventListener("pointerdown", (event) => {
    start = place(event);
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    if (start === null) return;
    const [x, y] = place(event);
    rectangle.setAttribute("x", String(Math.min(x, start[0])));
    rectangle.setAttribute("y", String(Math.min(y, start[1])));
    rectangle.setAttribute("width", String(Math.abs(x - start[0])));
    rectangle.setAttribute("height", String(Math.abs(y - start[1])));
  });
  picture.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const [[x, y], [a, b]] = [place(event), start];
    start = null;
    rectangle.setAttribute("width", "0");
    if (Math.abs(x - a) > 3 && Math.abs(y - b) > 3) {
      done(Math.min(x, a), Math.max(x, a), Math.min(y, b), Math.max(y, b));
    }
  });
}

// Curves -------------------------------------------------------------------------------------------

/**
 * @typedef {{name: string, color: string, dash?: string, x: ArrayLike<number>, y: ArrayLike<number>,
 *   low?: ArrayLike<number>, high?: ArrayLike<number>}} Curve With a band between `low` and `high`.
 * @typedef {{at: number, title: string}} Mark
 */

/** The colours of curves: those of Okabe and Ito, which the colour-blind can tell apart. */
export const CURVE_COLORS = [1, 2, 3, 4, 5, 6, 7].map((place) => `var(--curve-${place})`);
/** The dashes of curves, so that colour is not the only difference. */
export const DASHES = ["", "6 3", "2 3", "8 3 2 3", "12 4", "4 2", "1 2"];

/**
 * Curves over a common axis, with vertical marks.
 * @param {Curve[]} drawn
 * @param {{label: string, xLabel: string, marks?: Mark[], within?: [number, number]}} options
 * @returns {Draw}
 */
export function curves(drawn, { label, xLabel, marks = [], within }) {
  return (width, height) => {
    const box = { left: 46, right: width - 20, top: 8, bottom: height - 32 };
    const x = scale(extentOf(drawn.map((each) => each.x)), [box.left, box.right]);
    const bands = drawn.flatMap((each) => [each.y, each.low ?? [], each.high ?? []]);
    const y = scale(within ?? padded(extentOf(bands)), [box.bottom, box.top], 4);
    const picture = svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
      axes(x, y, box),
      svg("text.axis", { x: (box.left + box.right) / 2, y: height - 2, "text-anchor": "middle" }, xLabel),
    );
    for (const { at, title } of marks) {
      const place = x(at);
      picture.append(svg("g.mark", {}, svg("title", {}, title),
        svg("line", { x1: place, x2: place, y1: box.top, y2: box.bottom })));
    }
    for (const curve of drawn) picture.append(...curveOf(curve, x, y));
    return [picture];
  };
}

/** @param {Curve} curve @param {Scale} x @param {Scale} y */
function curveOf({ name, color, dash, x: xs, y: ys, low, high }, x, y) {
  /** @param {ArrayLike<number>} values */
  const pointsOf = (values) => {
    const points = [];
    for (let place = 0; place < values.length; place++) {
      const value = values[place];
      points.push(value === value ? `${x(xs[place]).toFixed(1)},${y(value).toFixed(1)}` : "");
    }
    return points;
  };
  const parts = [];
  if (low && high) {
    const outline = [...pointsOf(low), ...pointsOf(high).reverse()].filter(Boolean).join(" ");
    parts.push(svg("polygon.band", { points: outline, style: { fill: color } }));
  }
  // A gap where there is no value: a failure is not drawn as a number.
  const pieces = pointsOf(ys).join(" ").split(/ {2,}/).map((piece) => piece.trim()).filter(Boolean);
  const path = pieces.map((piece) => `M${piece.replaceAll(" ", "L")}${piece.includes(" ") ? "" : "h0.1"}`).join("");
  parts.push(svg("path.curve", { d: path, "stroke-dasharray": dash ?? null, style: { stroke: color } },
    svg("title", {}, name)));
  return parts;
}

/** @param {ArrayLike<number>[]} lists @returns {[number, number]} */
function extentOf(lists) {
  const ends = lists.map((values) => extent(Float64Array.from(values))).filter(([low]) => low === low);
  return [Math.min(...ends.map(([low]) => low)), Math.max(...ends.map(([, high]) => high))];
}

/** @param {Curve[]} drawn @returns {HTMLElement} The names of curves beside their lines. */
export function legend(drawn) {
  const entries = drawn.map(({ name, color, dash }) =>
    h("li", {},
      svg("svg", { width: 26, height: 10, "aria-hidden": "true" },
        svg("path.curve", { d: "M1 5H25", "stroke-dasharray": dash ?? null, style: { stroke: color } })),
      h("span", {}, name)),
  );
  return h("ul.legend", {}, ...entries);
}
