/** The tree of rubrics of one step, as `rubric.score` returns it. */

import { h } from "./dom.js";
import { gauge } from "./plots.js";
import { asText, duration, folded, inline, number, prose } from "./text.js";

/** @typedef {import("./source.js").Row} Row */
/**
 * @typedef {{name: string, value?: number | null, status?: string, weight?: number | null,
 *   seconds?: number, reason?: string | null, error?: string | null, hook_errors?: string[],
 *   details?: Record<string, unknown>, children?: Node_[]}} Node_ A node of the tree.
 */

const MAX_DEPTH_SHOWN = 60;
/** What the details of a judge are. */
const JUDGE = /** @type {Record<string, string>} */ ({ prompt: "the judge's prompt", answer: "the judge's answer" });

/**
 * The recorded tree of a step; otherwise one of its components, or of those of the whole row.
 * @param {Row} row
 * @param {number} [place] Which of the steps, from 0; by default the whole row.
 * @returns {{tree: Node_ | null, source: "trees" | "step" | "row"}}
 */
export function treeOf(row, place = -1) {
  const recorded = row.trees?.[place];
  if (recorded) return { tree: recorded, source: "trees" };
  const ofStep = row.step_components?.[place];
  const source = ofStep ? "step" : "row";
  const components = Object.entries(ofStep ?? row.components ?? {});
  if (!components.length) return { tree: null, source };
  /** @type {Node_} */
  const root = { name: "reward", value: ofStep ? row.step_rewards?.[place] : row.score, children: [] };
  if (!row.is_score_valid) root.status = "failed";
  for (const [path, value] of components) {
    let node = root;
    for (const name of path.split(".")) {
      node.children ??= [];
      let child = node.children.find((each) => each.name === name);
      if (child === undefined) node.children.push((child = { name }));
      node = child;
    }
    node.value = value;
  }
  return { tree: root, source };
}

/**
 * A tree as nested lists. What was stopped is grey and has no value; what failed has its error.
 * @param {Node_} root
 * @returns {HTMLElement}
 */
export function treeView(root) {
  const most = Math.max(1, ...valuesOf(root).map(Math.abs));
  return h("ul.tree", { "aria-label": "Rubrics" }, nodeView(root, most));
}

/** @param {Node_} node @returns {number[]} */
function valuesOf(node) {
  const own = typeof node.value === "number" ? [node.value] : [];
  return [...own, ...(node.children ?? []).flatMap(valuesOf)];
}

/** @param {Node_} node @param {number} most @param {number} [depth] @returns {HTMLElement} */
function nodeView(node, most, depth = 0) {
  const status = node.status ?? (typeof node.value === "number" ? "scored" : "unknown");
  const details = [
    node.reason && h("p.reason", {}, ...(status === "skipped" ? ["stopped: "] : []), inline(node.reason, 2000)),
    // The parents of a rubric that failed have the same error.
    node.error && !node.children?.some((each) => each.error === node.error)
      && h("p.error", { role: "note" }, inline(node.error, 2000)),
    ...(node.hook_errors ?? []).map((each) => h("p.error", { role: "note" }, "a hook: ", inline(each, 2000))),
    ...Object.entries(node.details ?? {}).map(([name, text]) =>
      folded(JUDGE[name] ?? inline(name, 60), () => prose(asText(text)))),
  ];
  const children = depth < MAX_DEPTH_SHOWN ? node.children ?? [] : [];
  return h(`li.${status}`, {},
    h("div.node", {},
      h("span.name", {}, inline(node.name || "reward", 80)),
      typeof node.weight === "number"
        && h("span.weight", { title: "weight" }, `× ${Number(node.weight.toPrecision(4))}`),
      node.seconds ? h("span.seconds", { title: "duration" }, duration(node.seconds)) : null,
      valueMark(node, status, most)),
    ...details,
    children.length > 0 && h("ul", {}, ...children.map((each) => nodeView(each, most, depth + 1))),
  );
}

/** @param {Node_} node @param {string} status @param {number} most @returns {HTMLElement} */
function valueMark({ value }, status, most) {
  const hasValue = typeof value === "number";
  if (status === "failed") {
    return h("span.value", {}, h("span.tag.failed", {}, "failed"), hasValue && h("b", {}, number(value)));
  }
  if (status === "skipped") return h("span.value", {}, h("span.tag.skipped", {}, "stopped"));
  if (!hasValue) return h("span.value.muted", {}, "–");
  return h(value === 0 ? "span.value.zero" : "span.value", {}, gauge(value, most), h("b", {}, number(value)));
}
