/** Showing text that a model wrote: inert, with invisible characters made visible. */

import { h } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */

// Control characters, bidirectional controls, zero-width characters, tags and lone surrogates.
// Line feed, tab and the zero-width joiner inside an emoji are shown as they are.
const INVISIBLE = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u115f\\u1160\\u17b4\\u17b5" +
    "\\u180e\\u200b\\u200c\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0" +
    "\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}\\ud800-\\udfff]|(?<!\\p{Extended_Pictographic}\\ufe0f?" +
    "\\p{Emoji_Modifier}?)\\u200d",
  "gu",
);
const FOLD_AT = 6000;

/**
 * Splits text into plain text and labels for characters that can't be seen.
 * @param {string} text
 * @returns {Child[]}
 */
export function reveal(text) {
  /** @type {Child[]} */
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(INVISIBLE)) {
    if (found.index > end) parts.push(text.slice(end, found.index));
    const code = /** @type {number} */ (found[0].codePointAt(0));
    const label = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    parts.push(h("span.invisible", { title: "a character that can't be seen" }, label));
    end = found.index + found[0].length;
  }
  if (end < text.length) parts.push(text.slice(end));
  return parts;
}

/**
 * Text of one line, for lists and titles; long text is cut.
 * @param {unknown} value
 * @param {number} [length]
 * @returns {HTMLElement}
 */
export function inline(value, length = 200) {
  const text = asText(value);
  const cut = text.length > length ? `${text.slice(0, length)}…` : text;
  return h("bdi", {}, ...reveal(cut.replace(/\s+/g, " ")));
}

/**
 * Any value of JSON as text.
 * @param {unknown} value
 * @returns {string}
 */
export function asText(value) {
  if (typeof value === "string") return value;
  return value === undefined || value === null ? "–" : JSON.stringify(value);
}

/**
 * A number with three decimals, as the tables of the commands have it.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function number(value) {
  if (typeof value !== "number" || Number.isNaN(value)) return "–"; // a file may have anything
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.0005 || size >= 1e7)) return value.toExponential(2);
  return (value + 0).toFixed(3);
}

/**
 * A number in as few digits as say enough, for axes and labels.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function brief(value) {
  if (typeof value !== "number" || Number.isNaN(value)) return "–"; // a file may have anything
  const rounded = Number(value.toPrecision(3));
  const size = Math.abs(rounded);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return rounded.toExponential().replace("e+", "e");
  return size >= 1e4 ? rounded.toLocaleString("en-US") : String(rounded + 0);
}

/** @param {number | null | undefined} value @returns {string} */
export function signed(value) {
  return value !== null && value !== undefined && value > 0 ? `+${number(value)}` : number(value);
}

/** @param {number} value @returns {string} */
export function count(value) {
  return value.toLocaleString("en-US");
}

/** @param {number} seconds @returns {string} */
export function duration(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(1)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(0)} ms` : `${(seconds * 1e6).toFixed(0)} µs`;
}

/**
 * The text of a message: code between fences is highlighted, a JSON document is laid out, and very
 * long text is cut until it is asked for.
 * @param {string} text
 * @returns {HTMLElement}
 */
export function prose(text) {
  const json = laidOut(text);
  if (json !== null) return code(text.length > 80 ? json : text);
  if (text.length <= FOLD_AT) return h("div.prose", { dir: "auto" }, ...fenced(text));
  const whole = () => box.replaceChildren(.../** @type {Node[]} */ (fenced(text)));
  const more = h("button.more", { onclick: whole }, `Show all ${count(text.length)} characters`);
  const box = h("div.prose", { dir: "auto" }, ...fenced(text.slice(0, FOLD_AT)), more);
  return box;
}

const JSON_TOKENS = /"(?:\\.|[^"\\])*"|[[{]\s*[\]}]|[[{\]},:]|[^\s[{\]},:"]+/g;

/**
 * @param {string} text
 * @returns {string | null} The JSON document with indents, if it is one. Its numbers and keys stay as they were written.
 */
export function laidOut(text) {
  const start = text.trimStart()[0];
  if ((start !== "{" && start !== "[") || text.length > 200_000) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let indent = "\n";
  return (text.match(JSON_TOKENS) ?? []).map((token) => {
    if (token === "{" || token === "[") return token + (indent += "  ");
    if (token === "}" || token === "]") return (indent = indent.slice(0, -2)) + token;
    if (token === ",") return token + indent;
    if (token === ":") return ": ";
    return token[0] === '"' ? JSON.stringify(JSON.parse(token)) : token.replace(/\s/g, "");
  }).join("");
}

/** @param {string} text @returns {Child[]} */
function fenced(text) {
  return text.split(/^(```[\s\S]*?(?:^```[ \t]*$|(?![\s\S])))/m).flatMap((part) => {
    if (!part.startsWith("```")) return reveal(part);
    const inside = /^```[^\n]*\n?([\s\S]*?)\n?(?:```[ \t]*)?$/.exec(part);
    return [code(inside ? inside[1] : part)];
  });
}

const KEYWORDS =
  "and|as|async|await|break|case|class|const|continue|def|del|elif|else|except|export|false|False|finally|fn|for|" +
  "from|function|if|import|in|is|lambda|let|match|new|None|not|null|or|pass|raise|return|self|struct|true|True|" +
  "try|var|while|with|yield";
const TOKENS = new RegExp(
  [
    /(?<comment>#[^\n]*|\/\/[^\n]*|\/\*[\s\S]*?\*\/)/.source,
    /(?<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')/.source,
    /(?<number>\b\d[\w.]*)/.source,
    `(?<keyword>\\b(?:${KEYWORDS})\\b)`,
  ].join("|"),
  "g",
);

/**
 * Code with comments, strings, numbers and keywords coloured, whatever the language.
 * @param {string} text
 * @returns {HTMLElement}
 */
export function code(text) {
  const block = h("pre.code", { tabindex: "0", role: "region", "aria-label": "code" });
  let end = 0;
  // A document of megabytes is not worth a span for each of its words.
  for (const found of text.length > 50_000 ? [] : text.matchAll(TOKENS)) {
    block.append(.../** @type {Node[]} */ (reveal(text.slice(end, found.index))));
    const kinds = Object.entries(found.groups ?? {});
    const [kind] = kinds.find(([, value]) => value !== undefined) ?? ["plain"];
    block.append(h(`span.${kind}`, {}, ...reveal(found[0])));
    end = found.index + found[0].length;
  }
  block.append(.../** @type {Node[]} */ (reveal(text.slice(end))));
  return block;
}

/**
 * Something long behind a line that opens it.
 * @param {Child | Child[]} title
 * @param {() => Child} content Called when it is opened first.
 * @param {boolean} [isOpen]
 * @returns {HTMLElement}
 */
export function folded(title, content, isOpen = false) {
  const box = h("details.fold", { open: isOpen }, h("summary", {}, ...[title].flat()));
  const fill = () => {
    if (box.hasAttribute("open") && box.childElementCount === 1) {
      box.append(.../** @type {Node[]} */ ([content()]));
    }
  };
  box.addEventListener("toggle", fill);
  fill();
  return box;
}
