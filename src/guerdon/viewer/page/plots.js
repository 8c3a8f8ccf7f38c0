/** Plots: histograms, scatter plots and curves, in SVG and on canvas; the colours of numbers. */

import { h, replaceContent, shorten, svg, useArrowKeys } from "./dom.js";
import { NONE } from "./filters.js";
import { extent, multiple, roundStep, roundingOf } from "./table.js";
import { brief, count } from "./text.js";

/** @typedef {(width: number, height: number, plot: Element) => Element[]} Draw */

/** A drawing that is as wide as its box; its height is fixed by its class. */
export class Plot extends HTMLElement {
  /** @type {Draw} */ #draw = () => [];
  /** @type {[width: number, height: number]} */ #size = [0, 0];
  #observer = new ResizeObserver(([{ contentRect: { width, height } }]) => {
    this.#size = [Math.round(width), Math.round(height)];
    this.#redraw();
  });

  connectedCallback() {
    this.#observer.observe(this);
  }

  disconnectedCallback() {
    this.#observer.disconnect();
  }

  /** @param {Draw} draw Called now, and when the width changes. */
  show(draw) {
    this.#draw = draw;
    this.#redraw();
  }

  #redraw() {
    // To ask for the size after each change of the page would lay it out each time.
    if (this.#size[0] === 0) this.#size = [this.clientWidth, this.clientHeight];
    const [width, height] = this.#size;
    if (width > 100) replaceContent(this, ...this.#draw(width, height, this));
  }
}
customElements.define("g-plot", Plot);

/** @param {string} shape A class that sets the height. @returns {Plot} */
export function plot(shape) {
  return /** @type {Plot} */ (h(`g-plot.${shape}`));
}

// Scales -------------------------------------------------------------------------------------------

/**
 * @typedef {{(value: number): number, domain: [number, number], ticks: number[],
 *   text: (tick: number) => string, invert: (pixel: number) => number}} Scale
 * @typedef {{left: number, right: number, top: number, bottom: number}} Box In pixels.
 */

/**
 * A linear scale; its ticks are at round numbers.
 * @param {[number, number]} domain
 * @param {[number, number]} range In pixels.
 * @param {number} [most] How many ticks.
 * @returns {Scale}
 */
export function scale(domain, range, most = 6) {
  let [low, high] = domain;
  if (!(high - low > roundingOf(low, high))) {
    const half = Math.max(0.5, 1e-6 * Math.abs(low));
    [low, high] = Number.isFinite(low) ? [low - half, low + half] : [0, 1];
  }
  const of = (/** @type {number} */ value) => range[0] + ((value - low) / (high - low)) * (range[1] - range[0]);
  const step = roundStep((high - low) / most);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n <= high / step + 1e-9; n++) ticks.push(multiple(n, step));
  const unit = roundStep((high - low) / 2000);
  const invert = (/** @type {number} */ pixel) =>
    multiple(Math.round((low + ((pixel - range[0]) / (range[1] - range[0])) * (high - low)) / unit), unit);
  return Object.assign(of, { domain: /** @type {[number, number]} */ ([low, high]), ticks, text: brief, invert });
}

/** @param {number} width @param {number} height */
function sizeOf(width, height) {
  return { width, height, viewBox: `0 0 ${width} ${height}` };
}

/**
 * Axes with light grid lines.
 * @param {Scale} x
 * @param {Scale} y
 * @param {Box} box
 * @param {string} [xLabel]
 * @param {string} [yLabel]
 * @returns {SVGElement}
 */
function axes(x, y, { left, right, top, bottom }, xLabel = "", yLabel = "") {
  const rows = y.ticks.map((tick) => ({ tick, at: Math.round(y(tick)) + 0.5 }));
  return svg("g.axes", { "aria-hidden": "true" },
    ...rows.map(({ at }) => svg("path", { d: `M${left} ${at}H${right}` })),
    ...rows.map(({ tick, at }) => svg("text", { x: left - 6, y: at + 3.5, "text-anchor": "end" }, y.text(tick))),
    ...x.ticks.map((tick) => svg("text", { x: x(tick), y: bottom + 15, "text-anchor": "middle" }, x.text(tick))),
    svg("text.axis", { x: (left + right) / 2, y: bottom + 30, "text-anchor": "middle" }, xLabel),
    svg("text.axis", { transform: `translate(9 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yLabel));
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

/** @param {(number | null | undefined)[]} values @returns {number} How far from 0 they are at most, for scales: never 0. */
export function reachOf(values) {
  return Math.max(1e-9, ...values.map((value) => Math.abs(value || 0)));
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
 *   kind: "bar" | "zero" | "below" | "none" | "failed", isChosen: boolean}} Bar `text` is the filter.
 * @typedef {{name: string, none?: "none" | "failed", chosen?: string[],
 *   choose?: (text: string, isAdded: boolean) => void}} HistogramOptions `name`: what the numbers are;
 *   `none`: what a row without a number is; `chosen`: the filters of the column; without `choose`, the
 *   bars are no buttons.
 */

/**
 * A histogram whose bars are buttons: the rows shown in front of all rows. Zeros and rows without a
 * number have bars of their own.
 * @param {import("./table.js").Binned} binned
 * @param {Int32Array} rows The rows shown.
 * @param {HistogramOptions} options
 * @returns {Draw}
 */
export function histogram(binned, rows, options) {
  const bars = barsOf(binned, rows, options);
  const isScale = binned.bins.some(({ low, high }) => low !== high); // then the edges are labelled
  return (width, height) => {
    const apart = bars.filter((bar) => bar.kind === "failed" || bar.kind === "none").length;
    const box = { left: 48, right: width - 4, top: 16, bottom: height - 22 };
    const gap = apart ? 18 : 0;
    const slot = Math.min((box.right - box.left - gap) / bars.length, 150);
    const y = scale([0, Math.max(1, ...bars.map((bar) => bar.total))], [box.bottom, box.top], 4);
    const x = Object.assign(scale([0, 1], [box.left, box.right]), { ticks: [] });
    const group = svg("g", { role: "group", "aria-label": `Distribution of ${options.name}` });
    const room = Math.max(1, Math.ceil(44 / slot));
    bars.forEach((bar, place) => {
      const left = box.left + place * slot + (place >= bars.length - apart ? gap : 0);
      group.append(barOf(bar, { left, slot, y, choose: options.choose }));
      const isInterval = bar.kind === "bar" || bar.kind === "below";
      const isEdge = isScale && isInterval;
      const isCrowded = isEdge && bars.some(({ kind }, other) => kind === "zero" && Math.abs(other - place) < room);
      if (isCrowded || (isInterval && place % room !== 0)) return;
      const middle = Math.min(isEdge ? left : left + slot / 2, width - 16); // else "failed" is cut off
      const labelled = { x: middle, y: height - 6, "text-anchor": "middle" };
      group.append(svg("text.tick", { ...labelled, "aria-hidden": "true" }, bar.label));
    });
    if (options.choose) useArrowKeys(group, ".bar");
    return [svg("svg", sizeOf(width, height), axes(x, y, box), group)];
  };
}

/**
 * @param {import("./table.js").Binned} binned
 * @param {Int32Array} rows
 * @param {HistogramOptions} options
 * @returns {Bar[]}
 */
function barsOf(binned, rows, { name, none = "none", chosen = [] }) {
  const counts = binned.count(rows);
  const described = binned.bins.map(({ low, high, text }) => ({
    label: brief(low), title: low === high ? `${name} is ${low}` : `${name} in ${text}`, text,
    kind: low === 0 && high === 0 ? "zero" : high <= 0 ? "below" : "bar",
  }));
  described.push({ label: none, title: none === "failed" ? none : `no ${name}`, text: NONE, kind: none });
  const bars = described.map((bar, place) =>
    ({ ...bar, count: counts[place], total: binned.whole[place], isChosen: chosen.includes(bar.text) }));
  return /** @type {Bar[]} */ (bars.filter((bar) => bar.text !== NONE || bar.total > 0));
}

/**
 * @param {Bar} bar
 * @param {{left: number, slot: number, y: Scale, choose: HistogramOptions["choose"]}} place
 */
function barOf(bar, { left, slot, y, choose }) {
  const inset = Math.min(slot * 0.12, 3);
  const [start, width, bottom] = [left + inset, slot - 2 * inset, y(0)];
  const rectangle = (/** @type {string} */ kind, /** @type {number} */ amount) => {
    const height = amount ? Math.max(bottom - y(amount), 1.5) : 0;
    return svg(`rect.${kind}`, { x: start, width, y: bottom - height, height, rx: Math.min(2, height / 2) });
  };
  const about = `${bar.title}: ${count(bar.count)} of ${count(bar.total)} rows`;
  const onclick = (/** @type {MouseEvent} */ { shiftKey, ctrlKey, metaKey }) =>
    choose?.(bar.text, shiftKey || ctrlKey || metaKey);
  return svg(
    `g.bar.${bar.kind}${bar.isChosen ? ".chosen" : ""}`,
    {
      role: choose ? "button" : "img", "aria-pressed": choose ? bar.isChosen : null, "aria-label": about, "data-key": `bar ${bar.text}`, onclick,
      onkeydown: (/** @type {any} */ event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onclick(event);
      },
    },
    svg("title", {}, about),
    svg("rect.hit", { x: left, y: 0, width: slot, height: bottom }),
    rectangle("whole", bar.total),
    rectangle("part", bar.count),
    slot > 34 && bar.total > 0 &&
      svg("text.amount", { x: left + slot / 2, y: y(bar.total) - 4, "text-anchor": "middle" }, count(bar.count)),
  );
}

// Scatter ------------------------------------------------------------------------------------------

/**
 * @typedef {{values: Float64Array, domain: [number, number], label: string, names?: string[]}} Axis
 *   `names` are those of a category, whose first value is at 0, the next one at 1.
 * @typedef {{x: Axis, y: Axis, rows: Int32Array, isSquare?: boolean,
 *   choose: (x: string[], y: string[]) => void}} ScatterOptions
 *   `isSquare` draws the diagonal; `choose` receives the filters of a dragged rectangle.
 */

/**
 * A scatter plot of any number of points: where many lie on each other, the colour is stronger.
 * @param {ScatterOptions} options
 * @returns {Draw}
 */
export function scatter(options) {
  return (width, height, plot) => {
    const box = { left: options.y.names ? 96 : 46, right: width - 8, top: 8, bottom: height - 34 };
    const x = axisScale(options.x, [box.left, box.right], 9);
    const y = axisScale(options.y, [box.bottom, box.top], 12);
    const canvas = pointsOf(options, x, y, { width, height, color: getComputedStyle(plot).color });
    const label = `${options.y.label} over ${options.x.label}, ${count(options.rows.length)} rows`;
    const picture = svg("svg.brush", { ...sizeOf(width, height), role: "img", "aria-label": label },
      axes(x, y, box, options.x.label, options.y.label),
      options.isSquare && svg("path.diagonal", { d: `M${box.left} ${box.bottom}L${box.right} ${box.top}` }));
    brush(picture, box, (left, right, top, bottom) => options.choose(
      within(options.x, x.invert(left), x.invert(right)), within(options.y, y.invert(bottom), y.invert(top))));
    return [picture, canvas]; // the points are over the grid
  };
}

/**
 * Draws squares. How many of them cover each pixel is counted first: that takes a quarter of the time of
 * drawing one after the other.
 * @param {ScatterOptions} options
 * @param {Scale} x
 * @param {Scale} y
 * @param {{width: number, height: number, color: string}} area
 * @returns {HTMLCanvasElement}
 */
function pointsOf({ rows, x: { values: xs }, y: { values: ys } }, x, y, area) {
  const density = Math.min(devicePixelRatio, 2);
  const [width, height] = [Math.round(area.width * density), Math.round(area.height * density)];
  const size = Math.round(density * (rows.length > 20_000 ? 2 : rows.length > 2000 ? 3 : 5));
  const covered = new Uint32Array(width * height);
  for (const row of rows) {
    const left = Math.round(density * x(xs[row]) - size / 2);
    const top = Math.round(density * y(ys[row]) - size / 2);
    for (let line = top; line < top + size; line++) {
      for (let column = left; column < left + size; column++) covered[line * width + column]++;
    }
  }
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { width, height, "aria-hidden": "true" }));
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
  context.fillStyle = area.color;
  context.fillRect(0, 0, width, height);
  const image = context.getImageData(0, 0, width, height);
  const opacity = Math.min(0.7, Math.max(0.04, 25 / Math.sqrt(rows.length)));
  const opacities = Uint8ClampedArray.from({ length: 256 }, (_, times) => 255 * (1 - (1 - opacity) ** times));
  covered.forEach((times, pixel) => (image.data[4 * pixel + 3] = opacities[Math.min(times, 255)]));
  context.putImageData(image, 0, 0);
  return canvas;
}

/** @param {Axis} axis @param {[number, number]} range @param {number} most Characters of a name. @returns {Scale} */
function axisScale({ domain, names }, range, most) {
  if (!names) return scale(padded(domain), range);
  return Object.assign(scale(domain, range), {
    ticks: [...names.keys()], text: (/** @type {number} */ tick) => shorten(names[tick], most),
  });
}

/** @param {Axis} axis @param {number} low @param {number} high @returns {string[]} The filter of a part of an axis. */
function within({ names }, low, high) {
  if (!names) return [`[${low},${high}]`];
  return names.filter((_, place) => place > low && place < high).map((name) => `=${name}`);
}

/** @param {[number, number]} domain @returns {[number, number]} */
function padded([low, high]) {
  const room = (high - low) * 0.04 || 0.5;
  return [low - room, high + room];
}

/**
 * Where the pointer is in a picture, at most at the edges of a box in it.
 * @param {SVGElement} picture
 * @param {Box} box
 * @param {PointerEvent} event
 * @returns {[x: number, y: number]}
 */
function pointIn(picture, { left, right, top, bottom }, { clientX, clientY }) {
  const from = picture.getBoundingClientRect();
  return [Math.min(Math.max(clientX - from.left, left), right), Math.min(Math.max(clientY - from.top, top), bottom)];
}

/**
 * Lets the pointer draw a rectangle.
 * @param {SVGElement} picture
 * @param {Box} box
 * @param {(left: number, right: number, top: number, bottom: number) => void} done
 */
function brush(picture, box, done) {
  /** @type {[number, number] | null} */
  let start = null;
  const rectangle = svg("path.selection");
  picture.append(rectangle);
  const end = () => {
    start = null;
    rectangle.setAttribute("d", "");
  };
  picture.addEventListener("pointercancel", end); // a finger that scrolls the page
  picture.addEventListener("pointerdown", (event) => {
    start = pointIn(picture, box, event);
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    if (start === null) return;
    const [x, y] = pointIn(picture, box, event);
    rectangle.setAttribute("d", `M${start}H${x}V${y}H${start[0]}Z`);
  });
  picture.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const [[x, y], [a, b]] = [pointIn(picture, box, event), start];
    end();
    if (Math.abs(x - a) < 4 || Math.abs(y - b) < 4) return;
    done(Math.min(x, a), Math.max(x, a), Math.min(y, b), Math.max(y, b));
  });
}

// Curves -------------------------------------------------------------------------------------------

/**
 * @typedef {{name: string, color: string, dash?: string, x: ArrayLike<number>, y: ArrayLike<number>,
 *   low?: ArrayLike<number>, high?: ArrayLike<number>, isStepped?: boolean}} Curve With a band between
 *   `low` and `high`; `isStepped`: a value applies until the next one.
 * @typedef {{at: number, title: string, sign?: string}} Mark `sign`: shown where there is no room for
 *   the title.
 */

// The colours of Okabe and Ito can be distinguished by the colour-blind; dashes are a second difference.
const CURVE_COLORS = [1, 2, 3, 4, 5, 6, 7].map((place) => `var(--curve-${place})`);
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "12 4", "4 2", "1 2"];

/** @param {number} place Which of several curves, from 0. @returns {{color: string, dash: string}} */
export function styleOf(place) {
  const size = CURVE_COLORS.length;
  return { color: CURVE_COLORS[place % size], dash: DASHES[(place + Math.floor(place / size)) % size] };
}

/**
 * Curves over a common axis, with vertical marks.
 * @param {Curve[]} drawn
 * @param {{label: string, xLabel: string, marks?: Mark[], within?: [number, number],
 *   point?: (x: number | null) => void}} options `point` receives where the pointer is.
 * @returns {Draw}
 */
export function curves(drawn, { label, xLabel, marks = [], within, point }) {
  return (width, height) => {
    const box = { left: 46, right: width - 20, top: marks.length ? 32 : 8, bottom: height - 32 };
    const x = scale(extentOf(drawn.map((each) => each.x)), [box.left, box.right]);
    const bands = drawn.flatMap((each) => [each.y, each.low ?? [], each.high ?? []]);
    const y = scale(within ?? padded(extentOf(bands)), [box.bottom, box.top], 4);
    const picture = svg("svg", { ...sizeOf(width, height), role: "img", "aria-label": label },
      axes(x, y, box, xLabel),
      ...marksOf(marks, x, box),
      ...drawn.flatMap((curve) => curveOf(curve, x, y)));
    if (point) listenToPointer(picture, x, box, point);
    return [picture];
  };
}

/**
 * Vertical lines with their titles, in two rows; where there is no room for a title, with its sign.
 * @param {Mark[]} marks
 * @param {Scale} x
 * @param {Box} box
 * @returns {SVGElement[]}
 */
function marksOf(marks, x, { right, top, bottom }) {
  return marks.map(({ at, title, sign }, place) => {
    const left = x(at);
    const room = (place + 2 < marks.length ? x(marks[place + 2].at) : right) - left - 8;
    const d = `M${left} ${top - 26}V${bottom}`;
    const shown = right > 600 && room > 5.8 * title.length ? title : sign;
    return svg("g.mark", {}, svg("title", {}, `${brief(at)}: ${title}`), svg("path.hit", { d }), svg("path", { d }),
      svg("text", { x: left + 4, y: top - 17 + 12 * (place % 2) }, shown));
  }).reverse(); // a title is over the lines after it
}

/** @param {SVGElement} picture @param {Scale} x @param {Box} box @param {(x: number | null) => void} point */
function listenToPointer(picture, x, box, point) {
  const line = svg("path.pointer");
  picture.append(line);
  picture.addEventListener("pointermove", (event) => {
    const [at] = pointIn(picture, box, event);
    line.setAttribute("d", `M${at} ${box.top}V${box.bottom}`);
    point(x.invert(at));
  });
  picture.addEventListener("pointerleave", () => {
    line.setAttribute("d", "");
    point(null);
  });
}

/** @param {Curve} curve @param {Scale} x @param {Scale} y @returns {SVGElement[]} */
function curveOf({ name, color, dash, x: xs, y: ys, low, high, isStepped }, x, y) {
  const pointOf = (/** @type {ArrayLike<number>} */ values, /** @type {number} */ place) =>
    `${x(xs[place]).toFixed(1)} ${y(values[place]).toFixed(1)}`;
  let path = "";
  const seen = Array.from(ys, (_, place) => place).filter((place) => ys[place] === ys[place]);
  for (const place of seen) {
    // A gap where there is no value: a failure is not drawn as a number.
    const isGap = !Number.isFinite(ys[place - 1]);
    if (isGap) path += `M${pointOf(ys, place)}h0.1`;
    else path += isStepped ? `H${x(xs[place])}V${y(ys[place])}` : `L${pointOf(ys, place)}`;
  }
  const style = { stroke: color };
  const curve = svg("path.curve", { d: path, "stroke-dasharray": dash, style }, svg("title", {}, name));
  if (!low || !high) return [curve];
  const outline = [...seen.map((place) => pointOf(low, place)), ...seen.map((place) => pointOf(high, place)).reverse()];
  return [svg("polygon.band", { points: outline.join(" "), style: { fill: color } }), curve];
}

/** @param {ArrayLike<number>[]} lists @returns {[number, number]} */
function extentOf(lists) {
  const ends = lists.map((values) => extent(Float64Array.from(values))).filter(([low]) => low === low);
  return [Math.min(...ends.map(([low]) => low)), Math.max(...ends.map(([, high]) => high))];
}

/** @param {{color: string, dash?: string}} style @returns {SVGElement} A piece of a curve. */
export function lineOf({ color, dash }) {
  const line = svg("path", { d: "M1 5H25", "stroke-dasharray": dash, style: { stroke: color } });
  return svg("svg.line-of", { width: 26, height: 10, "aria-hidden": "true" }, line);
}
