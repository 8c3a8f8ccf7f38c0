/** Observations and actions: text, tables, images, and everything else as JSON. */

import { h, scrolled } from "./dom.js";
import { isConversation, outcomeMessage, outcomesOf } from "./episode.js";
import { imageView, messageView } from "./rollout.js";
import { asText, code, inline, prose } from "./text.js";

/** @typedef {import("./episode.js").Data} Data */

const MAX_CELLS = 5000;
const MAX_JSON = 200_000; // characters
const LEAST_IMAGE = 12; // pixels; smaller arrays are tables
/** How the Base64 of an image begins. */
const MAGIC = { iVBORw0KGgo: "png", "/9j/": "jpeg", R0lGOD: "gif", UklGR: "webp" };

/**
 * The fields of an observation.
 * @param {Data} content
 * @returns {HTMLElement}
 */
export function fieldsView(content) {
  const { messages } = content;
  if (isConversation(messages)) return h("div", {}, ...messages.map((/** @type {Data} */ each) => messageView(each)));
  const outcomes = outcomesOf(content);
  if (outcomes.length) {
    return h("div", {}, ...outcomes.map((each) => messageView(outcomeMessage(each), each.tool_name)));
  }
  const isEmpty = (/** @type {any} */ value) => value === null || value === "" || (typeof value === "object" && !Object.keys(value).length);
  const fields = Object.entries(content).filter(([, value]) => !isEmpty(value));
  if (!fields.length) return h("p.muted", {}, "nothing");
  if (fields.length === 1 && typeof fields[0][1] === "string") return valueView(fields[0][1]);
  return h("dl.content", {}, ...fields.flatMap(([name, value]) =>
    [h("dt", {}, inline(name, 60)), h("dd", {}, valueView(value))]));
}

/** @param {unknown} value @returns {HTMLElement} */
function valueView(value) {
  if (typeof value === "string") return imageOf(value) ?? prose(value);
  if (typeof value !== "object" || value === null) return h("span", {}, inline(value));
  const image = Array.isArray(value) ? pixelsOf(value) : imageOf(Object(value).png ?? Object(value).data);
  return image ?? tableView(value) ?? mappingView(value) ?? code(JSON.stringify(value, null, 2).slice(0, MAX_JSON));
}

/** @param {object} value @returns {HTMLElement | null} A list or a mapping of short values, or a mapping of texts. */
function mappingView(value) {
  const entries = Object.entries(value);
  if (entries.length > MAX_CELLS) return null;
  if (entries.every(([, each]) => isScalar(each))) {
    return h("ul.values", {}, ...entries.map(([name, each]) =>
      h("li", {}, !Array.isArray(value) && h("span.muted", {}, inline(name, 60), " "), inline(each, 60))));
  }
  const isText = !Array.isArray(value) && entries.every(([, each]) => typeof each !== "object");
  return isText ? fieldsView(value) : null;
}

/** @param {unknown} text @returns {HTMLElement | null} An image in Base64, or by its data URL. */
function imageOf(text) {
  if (typeof text !== "string" || text.length < 40) return null;
  const [, kind] = Object.entries(MAGIC).find(([start]) => text.startsWith(start)) ?? [];
  return imageView(kind ? `data:image/${kind};base64,${text}` : text, "image of the observation");
}

/** @param {any[]} rows Of numbers, or of colours. @returns {HTMLElement | null} */
function pixelsOf(rows) {
  const [height, width] = [rows.length, rows[0]?.length ?? 0];
  const channels = rows[0]?.[0]?.length ?? 1;
  if (Math.min(height, width) < LEAST_IMAGE || ![1, 3, 4].includes(channels)) return null;
  const flat = rows.flat(2);
  const isByte = (/** @type {unknown} */ each) => Number.isInteger(each) && Number(each) >= 0 && Number(each) <= 255;
  if (flat.length !== height * width * channels || !flat.every(isByte)) return null;
  const canvas = h("canvas.pixels", { width, height, role: "img", "aria-label": `image of ${width} × ${height} pixels` });
  const data = new ImageData(width, height);
  for (let pixel = 0; pixel < width * height; pixel++) {
    for (let channel = 0; channel < 4; channel++) {
      const at = channels === 1 ? pixel : pixel * channels + channel;
      data.data[4 * pixel + channel] = channel < Math.max(channels, 3) ? flat[at] : 255;
    }
  }
  canvas.getContext("2d")?.putImageData(data, 0, 0);
  return canvas;
}

/** @param {object} value @returns {HTMLElement | null} Rows of numbers or short texts, or the lines of a board. */
function tableView(value) {
  if (!Array.isArray(value) || !value.length) return null;
  const isRows = value.every((each) => Array.isArray(each) && each.length === value[0].length);
  const rows = isBoardOf(value) ? value.map((each) => [...each]) : isRows ? value : null;
  const isTable = rows?.every((/** @type {unknown[]} */ row) => row.every(isScalar)) && rows.flat().length <= MAX_CELLS;
  if (!rows || !isTable) return null;
  const lines = rows.map((/** @type {unknown[]} */ row) => h("tr", {}, ...row.map((each) => h("td", {}, inline(each, 60)))));
  return scrolled("cells", "table", h("table", {}, h("tbody", {}, ...lines)));
}

/** @param {unknown[]} rows Whether they are lines of equal length, of few different characters. */
function isBoardOf(rows) {
  const width = String(rows[0]).length;
  const isEqual = rows.every((row) => typeof row === "string" && row.length === width);
  return isEqual && rows.length > 2 && width > 2 && width < 40 && new Set(rows.join("")).size < 16;
}

/** @param {unknown} value */
function isScalar(value) {
  return value === null || (typeof value !== "object" && asText(value).length <= 60);
}
