/** Where the data comes from: the server, or the report that contains the page. */

import { asText } from "./text.js";

/**
 * @typedef {{name: string, type: "number" | "category" | "text", values?: string[]}} ColumnInfo
 * @typedef {{index: number, name: string, kind: string, rows: number, complete: boolean,
 *   version?: string, without_rollout?: number, duplicates?: number, duplicate_rollouts?: number, note?: string,
 *   columns: ColumnInfo[]}} FileInfo
 * @typedef {Record<string, any>} Row
 * @typedef {Map<string, Float64Array | Int32Array>} Arrays
 * @typedef {{rows: number, columns: {name: string, type: string, offset: number, bytes: number}[]}}
 *   ArraysHeader
 */

/**
 * @typedef {object} Source
 * @property {boolean} isLive Whether files may change.
 * @property {() => Promise<FileInfo[]>} files
 * @property {(file: number, names: string[]) => Promise<Arrays>} columns
 * @property {(file: number, at: number[], brief?: boolean) => Promise<Row[]>} rows
 * @property {(file: number, text: string) => Promise<{rows: Int32Array, isCut: boolean}>} search
 * @property {(file: number, by: string) => Promise<Int32Array>} order The rows with a text in a column.
 * @property {(file: number, other: number) => Promise<Int32Array>} join
 * @property {(versions: (string | undefined)[]) => Promise<(string | undefined)[]>} changes The version
 *   of each file, as soon as one differs from the argument, or after some seconds.
 */

const MAX_STEPS = 100_000; // of an episode

/** Keys whose values aren't text of a person or a model. */
const NOT_SEARCHED = new Set(["role", "type", "fingerprint", "sandbox"]);

/** @param {ArraysHeader} header @param {ArrayBuffer} buffer @param {number} start @returns {Arrays} */
function arraysOf(header, buffer, start) {
  return new Map(header.columns.map(({ name, type, offset, bytes }) => [name, type === "number"
    ? new Float64Array(buffer, start + offset, bytes / 8) : new Int32Array(buffer, start + offset, bytes / 4)]));
}

/** @param {ArrayBuffer} buffer @returns {{header: any, start: number}} */
function headerOf(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return { header, start: Math.ceil((4 + length) / 8) * 8 };
}

/**
 * The answer of the server to a request.
 * @param {string} path Relative to the page, as the server may be mounted.
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  const response = await fetch(path, { ...options, signal: AbortSignal.timeout(60_000) })
    .catch(() => { throw new Error("the server doesn't answer"); });
  if (response.ok) return response;
  const { error, detail } = await response.json().catch(() => ({}));
  const problems = [error ?? detail ?? `the server answered ${response.status}`].flat();
  throw new Error(problems.map((each) => each.message ?? each.msg ?? String(each)).join("; "));
}

/** @param {string} path */
export async function requestJson(path) {
  return parseJson(await (await request(path)).text());
}

/**
 * Parses JSON; integers that JavaScript would round, such as ids and seeds, are texts of their digits.
 * @param {string} text
 * @returns {any}
 */
export function parseJson(text) {
  const exact = (/** @type {string} */ _, /** @type {any} */ value, /** @type {{source: string}} */ context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source) ? context.source : value;
  return JSON.parse(text, /(?<![.\d])\d{16}/.test(text) ? /** @type {any} */ (exact) : undefined);
}

/** The data of the server that served this page. @implements {Source} */
export class HttpSource {
  isLive = true;

  /**
   * @param {string} path
   * @param {Record<string, string | number | string[]>} [query] A list repeats its parameter.
   * @returns {Promise<Response>}
   */
  #get(path, query = {}) {
    const pairs = Object.entries(query).flatMap(([key, values]) =>
      [values].flat().map((value) => [key, String(value)]));
    const search = new URLSearchParams(pairs);
    return request(`api/${path}?${search}`);
  }

  async files() {
    return (await requestJson("api/files")).files;
  }

  /** @param {number} file @param {string[]} names */
  async columns(file, names) {
    const buffer = await (await this.#get("columns", { file, names })).arrayBuffer();
    const { header, start } = headerOf(buffer);
    return arraysOf(header, buffer, start);
  }

  /** @param {number} file @param {number[]} at @param {boolean} [brief] @returns {Promise<Row[]>} */
  async rows(file, at, brief = false) {
    const query = { file, at: at.join(","), ...(brief ? { brief: 1 } : {}) };
    const { rows } = parseJson(await (await this.#get("rows", query)).text());
    rows.forEach(makeReadable);
    if (at.length === 1) return rows;
    // An answer has at most 8 MB; what was left out is small enough alone.
    for (const [place, row] of rows.entries()) {
      if (row._too_large) [rows[place]] = await this.rows(file, [at[place]], brief);
    }
    return rows;
  }

  /** @param {number} file @param {string} text */
  async search(file, text) {
    const response = await this.#get("search", { file, q: text });
    const isCut = response.headers.has("guerdon-truncated");
    return { rows: new Int32Array(await response.arrayBuffer()), isCut };
  }

  /** @param {number} file @param {string} by */
  async order(file, by) {
    return new Int32Array(await (await this.#get("order", { file, by })).arrayBuffer());
  }

  /** @param {number} file @param {number} other */
  async join(file, other) {
    return new Int32Array(await (await this.#get("join", { file, other })).arrayBuffer());
  }

  /** @param {(string | undefined)[]} versions */
  async changes(versions) {
    return (await (await this.#get("changes", { versions: versions.map(String) })).json()).versions;
  }
}

/** The data that a report contains. @implements {Source} */
export class EmbeddedSource {
  isLive = false;
  /** @type {any} */ #header;
  /** @type {ArrayBuffer} */ #buffer = new ArrayBuffer(0);
  #start = 0;
  /** @type {Map<number, Row[]>} */ #parsed = new Map();

  /**
   * @param {string} text The data: base64 of gzip.
   * @returns {Promise<EmbeddedSource>}
   */
  static async open(text) {
    const source = new EmbeddedSource();
    const bytes = Uint8Array.from(atob(text.trim()), (each) => each.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    source.#buffer = await new Response(stream).arrayBuffer();
    ({ header: source.#header, start: source.#start } = headerOf(source.#buffer));
    return source;
  }

  async files() {
    return this.#header.files;
  }

  /** @param {number} file @param {string[]} names */
  async columns(file, names) {
    const all = arraysOf(this.#header.columns[file], this.#buffer, this.#start);
    return new Map(names.map((name) => [name, /** @type {Float64Array} */ (all.get(name))]));
  }

  /** @param {number} file @returns {Row[]} */
  #rows(file) {
    let rows = this.#parsed.get(file);
    if (rows === undefined) {
      const { offset, bytes } = this.#header.rows[file];
      const text = new TextDecoder().decode(new Uint8Array(this.#buffer, this.#start + offset, bytes));
      rows = text.split("\n").filter(Boolean).map(parseJson);
      rows.forEach(makeReadable);
      this.#parsed.set(file, rows);
    }
    return rows;
  }

  /** @param {number} file @param {number[]} at @param {boolean} [brief] */
  async rows(file, at, brief = false) {
    const rows = this.#rows(file);
    return at.map((row) => (brief ? { ...rows[row], text: lastText(rows[row]) } : rows[row]));
  }

  /** @param {number} file @param {string} text */
  async search(file, text) {
    const wanted = text.toLowerCase();
    const found = this.#rows(file).flatMap((row, place) => (contains(row, wanted) ? [place] : []));
    return { rows: Int32Array.from(found), isCut: false };
  }

  /** @param {number} file @param {string} by */
  async order(file, by) {
    const keys = this.#rows(file).map((row) =>
      textOrEmpty([row, row.before, row.after, row._rollout].map((each) => each?.[by]).find(Boolean)));
    const rows = Int32Array.from(keys.keys()).filter((row) => keys[row]);
    return rows.sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b));
  }

  /** @param {number} file @param {number} other */
  async join(file, other) {
    const [rows, others] = [this.#rows(file), this.#rows(other)];
    const places = Map.groupBy(others.keys(), (place) => textOrEmpty(others[place].id));
    const seen = new Map();
    // The second row with an id belongs to the second one of the other file.
    return Int32Array.from(rows, (row) => {
      const id = textOrEmpty(row.id);
      const [found, earlier] = [id === "" ? [] : places.get(id) ?? [], seen.get(id) ?? 0];
      seen.set(id, earlier + 1);
      return found[earlier] ?? found[0] ?? -1;
    });
  }

  /** @param {(string | undefined)[]} versions */
  async changes(versions) {
    return versions;
  }
}

/** @param {unknown} value An id, for example. @returns {string} Empty for null and undefined. */
function textOrEmpty(value) {
  return (value ?? null) === null ? "" : asText(value);
}

/** @param {unknown} value @returns {Row[]} The objects in it, if it is a list. */
function objectsOf(value) {
  return Array.isArray(value) ? value.filter((each) => each !== null && typeof each === "object") : [];
}

/** @param {unknown} value Whether it can be the number of a step. */
function isStep(value) {
  return Number.isInteger(value) && Number(value) >= 0 && Number(value) < MAX_STEPS;
}

/**
 * Makes what is of another type in a row empty, as a file may have anything; a note names it.
 * @param {Row} row
 */
function makeReadable(row) {
  const { _rollout: rollout } = row;
  /** @type {Set<string>} */
  const odd = new Set();
  const keep = (/** @type {Row} */ owner, /** @type {string} */ name, /** @type {any} */ kept) => {
    if ((owner[name] ?? null) === null) return delete owner[name];
    const isWhole = kept === owner[name] || (Array.isArray(kept) && kept.length === owner[name].length);
    if (!isWhole) odd.add(name);
    owner[name] = kept;
    return true;
  };
  const list = (/** @type {any} */ value) => (Array.isArray(value) ? value : []);
  if (rollout) {
    keep(rollout, "messages", objectsOf(rollout.messages));
    rollout.messages ??= [];
    for (const each of rollout.messages) keep(each, "tool_calls", objectsOf(each.tool_calls));
    keep(rollout, "first_turn", isStep(rollout.first_turn) ? rollout.first_turn : undefined);
  }
  for (const side of objectsOf([row, row.before, row.after])) {
    for (const name of ["step_rewards", "step_components", "stopped_by", "notes", "area", "final", "updates"]) keep(side, name, list(side[name]));
    for (const name of ["components", "change"]) keep(side, name, objectsOf([side[name]])[0] ?? {});
    keep(side, "steps", objectsOf(side.steps).filter(({ step_index: index }) => isStep(index)));
    keep(side, "curve", list(side.curve).filter((/** @type {any} */ point) => list(point).length && point.every(Number.isFinite)));
    keep(side, "trees", list(side.trees).map(readableTree));
  }
  if (odd.size) row.notes = [...row.notes ?? [], `Not all of ${[...odd].join(", ")} is shown: it has another form.`];
}

/** @param {Row} node @returns {Row | null} */
function readableTree(node) {
  if (!objectsOf([node]).length) return null;
  node.children = objectsOf(node.children).map(readableTree);
  if (!Array.isArray(node.hook_errors)) delete node.hook_errors;
  if (typeof node.seconds !== "number") delete node.seconds;
  return node;
}

/**
 * The text of a message: its content, or that of its parts.
 * @param {Row} message
 * @returns {string}
 */
export function messageText({ content }) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part) => (typeof part?.text === "string" ? part.text : "")).join("");
}

/** @param {Row} row @returns {string} The text of the last assistant message. */
function lastText(row) {
  const messages = row._rollout?.messages ?? [];
  const last = messages.findLast((/** @type {Row} */ each) => each.role === "assistant");
  return last ? (messageText(last) || actionText(last)).slice(0, 200) : row.reason ?? "";
}

/** @param {Row} message @returns {string} What an assistant did: its calls, or its text. */
export function actionText(message) {
  const calls = (message.tool_calls ?? []).map((/** @type {Row} */ call) =>
    `${call?.function?.name ?? "?"}(${String(call?.function?.arguments ?? "").replace(/^\{|\}$/g, "")})`);
  return calls.length ? calls.join("; ") : messageText(message);
}

/** @param {any} value @param {string} text In lower case. @returns {boolean} As the search of the server. */
function contains(value, text) {
  if (typeof value === "string" || Number.isInteger(value)) return String(value).toLowerCase().includes(text);
  return Object.entries(Object(value)).some(([name, each]) => !NOT_SEARCHED.has(name) && contains(each, text));
}
