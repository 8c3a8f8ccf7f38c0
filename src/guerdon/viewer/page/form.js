/** Forms that are made from JSON Schemas, and the values that are typed into them. */

import { choice, h, replaceContent } from "./dom.js";
import { parseJson } from "./source.js";
import { inline } from "./text.js";

/** @typedef {Record<string, any>} Schema */
/** @typedef {{root: Schema, path: string[], isRequired: boolean}} Place Where a value is, in which schema. */
/** @typedef {{element: HTMLElement, read: () => any}} Control Reads undefined if there is no value. */
/** @typedef {{loc: (string | number)[], msg: string}} Problem */

const MAX_DEPTH = 6; // of objects in objects; deeper ones are typed as JSON
const LONG = 255; // characters; the most that fit in a field of one line
// JavaScript rounds a larger one, and another number would be sent.
const TOO_LARGE = "must be within ±(2⁵³ − 1)";
let lastId = 0;

/** A value that is not valid, before it is sent. */
export class FormError extends Error {
  /** @param {string[]} loc @param {string} msg */
  constructor(loc, msg) {
    super(msg);
    this.errors = [{ loc, msg }];
  }
}

/** @param {Schema} schema @returns {Control} The fields of an object, or what the schema is otherwise. */
export function fieldsOf(schema) {
  return controlOf(schema, { root: schema, path: [], isRequired: true });
}

/**
 * Sends a form. Problems are shown at the fields that they are about.
 * @param {Element} form
 * @param {() => Promise<unknown>} send Its error has a list `errors`, if it is about fields.
 */
export async function sendForm(form, send) {
  showProblems(form, []);
  try {
    await send();
  } catch (error) {
    const { errors = [] } = /** @type {FormError} */ (error);
    if (!errors.length || showProblems(form, errors).length) throw error;
  }
}

/** @param {Element} form @param {Problem[]} problems @returns {Problem[]} Those that are about no field. */
function showProblems(form, problems) {
  for (const each of form.querySelectorAll(".field > .error")) each.textContent = "";
  for (const each of form.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
  return problems.filter(({ loc, msg }) => {
    const field = fieldAt(form, loc.map(String));
    field?.querySelector(".error")?.replaceChildren(inline(msg, 300));
    field?.querySelector("input, select, textarea")?.setAttribute("aria-invalid", "true");
    return field === undefined;
  });
}

/** @param {Element} form @param {string[]} loc Before the path of the field may be what contains the form. */
function fieldAt(form, loc) {
  const fields = [...form.querySelectorAll("[data-path]")];
  for (let start = 0; start < loc.length; start++) {
    for (let end = loc.length; end > start; end--) {
      const path = JSON.stringify(loc.slice(start, end));
      const found = fields.find((each) => each.getAttribute("data-path") === path);
      if (found) return found;
    }
  }
  return undefined;
}

/** @param {Schema} schema @param {Schema} root @returns {Schema} The schema that a reference names. */
export function resolved(schema, root) {
  for (let depth = 0; depth < MAX_DEPTH && (schema.$ref || schema.allOf?.length === 1); depth++) {
    const { $ref, allOf, ...rest } = schema;
    const path = String($ref ?? "").split("/").slice(1);
    const named = $ref ? path.reduce((found, name) => found?.[name], /** @type {any} */ (root)) : allOf[0];
    schema = { ...named, ...rest };
  }
  return schema;
}

/** @param {Schema} schema @param {Place} place @returns {Control} */
function controlOf(schema, place) {
  const own = resolved(schema, place.root);
  const types = Array.isArray(own.type) ? own.type.map((type) => ({ ...own, type })) : null;
  const all = (own.anyOf ?? own.oneOf ?? types ?? []).map((/** @type {Schema} */ each) => resolved(each, place.root));
  const options = all.filter((/** @type {Schema} */ each) => each.type !== "null");
  const inner = { ...place, isRequired: place.isRequired && options.length === all.length };
  if (options.length > 1) return alternatives(options, inner);
  const only = options.length ? { ...own, anyOf: null, oneOf: null, ...options[0], default: own.default } : own;
  const isObject = only.type === "object" && only.properties && place.path.length < MAX_DEPTH;
  if (isObject) return inner.isRequired ? objectOf(only, inner) : alternatives([only], inner);
  if ("const" in only) return { element: h("span", { hidden: true }), read: () => only.const };
  if (Array.isArray(only.enum)) return selectOf(only.enum, only.default, inner);
  if (only.type === "boolean") return booleanOf(only, inner);
  if (only.type === "integer" || only.type === "number") return numberOf(only, inner);
  return only.type === "string" ? textOf(only, inner) : jsonOf(only, inner);
}

/** @param {Schema} schema @param {Place} place @returns {Control} */
function objectOf(schema, place) {
  const required = schema.required ?? [];
  const fields = Object.entries(schema.properties).map(([name, each]) => {
    const path = [...place.path, name];
    const isRequired = required.includes(name);
    return { name, isRequired, each: resolved(each, place.root), path, control: controlOf(each, { root: place.root, path, isRequired }) };
  });
  const read = () => Object.fromEntries(
    fields.map(({ name, control }) => [name, control.read()]).filter(([, value]) => value !== undefined));
  return { element: h("div.fields", {}, ...fields.map(fieldOf)), read };
}

/** @param {{name: string, isRequired: boolean, each: Schema, path: string[], control: Control}} field */
function fieldOf({ name, isRequired, each, path, control: { element } }) {
  if (element.hidden) return element;
  const id = `field-${++lastId}`;
  const input = element.matches("input, select, textarea") ? element : null;
  const about = each.description && each.type !== "object" ? inline(each.description, 300) : null;
  input?.setAttribute("id", id);
  input?.setAttribute("aria-describedby", `${id}-about`);
  const title = [inline(name, 60), !isRequired && h("span.muted", {}, " optional")];
  return h("div.field", { "data-path": JSON.stringify(path), role: input ? null : "group", "aria-label": input ? null : name },
    input ? h("label", { for: id }, ...title) : h("span.label", {}, ...title),
    element, h("p.about", { id: `${id}-about` }, about), h("p.error", { role: "alert" }));
}

/** @param {Schema[]} options @param {Place} place @returns {Control} One of several schemas, or none. */
function alternatives(options, place) {
  const slot = h("div");
  /** @type {Control | null} */ let chosen = null;
  const names = options.map((each, at) => String(each.title ?? each.type ?? at + 1));
  const values = place.isRequired ? names : ["none", ...names];
  const show = (/** @type {string} */ name) => {
    const option = options[names.indexOf(name)];
    chosen = option ? controlOf(option, { ...place, isRequired: true }) : null;
    replaceContent(slot, chosen?.element);
  };
  show(values[0]);
  return { element: h("div.fields", {}, choice("kind", values, values[0], show), slot), read: () => chosen?.read() };
}

/** @param {unknown[]} values @param {unknown} initial @param {Place} place @returns {Control} */
function selectOf(values, initial, { isRequired }) {
  const shown = isRequired || values.includes(initial) ? values : [undefined, ...values];
  const select = h("select", {}, ...shown.map((value, at) =>
    h("option", { value: at, selected: value === initial }, value === undefined ? "–" : String(value).slice(0, LONG))));
  return { element: select, read: () => shown[Number(select.value)] };
}

/** @param {Schema} schema @param {Place} place @returns {Control} */
function booleanOf(schema, place) {
  if (!place.isRequired && typeof schema.default !== "boolean") return selectOf([true, false], undefined, place);
  const box = h("input", { type: "checkbox", checked: schema.default === true });
  return { element: box, read: () => box.checked };
}

/** @param {Schema} schema @param {Place} place @returns {Control} */
function numberOf(schema, place) {
  const isInteger = schema.type === "integer";
  const { minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below } = schema;
  const box = h("input", {
    type: "number", step: isInteger ? 1 : "any", value: schema.default, autocomplete: "off",
    min: minimum ?? (isInteger && above !== undefined ? above + 1 : above),
    max: maximum ?? (isInteger && below !== undefined ? below - 1 : below),
  });
  if (box.min && box.max) box.placeholder = `${box.min} to ${box.max}`;
  const read = () => {
    const value = box.value === "" ? undefined : Number(box.value);
    if (box.validity.badInput) throw new FormError(place.path, "must be a number");
    if (isInteger && Math.abs(value ?? 0) > Number.MAX_SAFE_INTEGER) throw new FormError(place.path, TOO_LARGE);
    return value;
  };
  return { element: box, read };
}

/** @param {Schema} schema @param {Place} place @returns {Control} */
function textOf(schema, { isRequired }) {
  const isShort = schema.maxLength <= LONG || schema.pattern || schema.format;
  const box = isShort ? h("input", { type: "text", autocomplete: "off" }) : h("textarea", { rows: 2, autocomplete: "off" });
  box.value = schema.default ?? "";
  return { element: box, read: () => (box.value === "" && !isRequired ? undefined : box.value) };
}

/** @param {Schema} schema @param {Place} place @returns {Control} */
function jsonOf(schema, { path, isRequired }) {
  const example = { array: "[…]", object: "{…}" }[String(schema.type)] ?? "";
  const box = h("textarea.json", { rows: 2, placeholder: `JSON ${example}` });
  const read = () => {
    if (!isRequired && !box.value.trim()) return undefined;
    let value;
    try {
      value = JSON.parse(box.value);
    } catch (error) {
      throw new FormError(path, `must be JSON: ${error instanceof Error ? error.message : error}`);
    }
    if (JSON.stringify(value) !== JSON.stringify(parseJson(box.value))) throw new FormError(path, `an integer ${TOO_LARGE}`);
    return value;
  };
  return { element: box, read };
}
