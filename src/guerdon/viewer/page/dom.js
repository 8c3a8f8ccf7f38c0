/** Creating elements. Text is only ever set as text, never parsed as HTML. */

/** @typedef {Node | string | null | undefined | false} Child */
/** @typedef {HTMLElementTagNameMap} Tags */
/**
 * @template {string} Name
 * @typedef {Name extends keyof Tags ? Tags[Name]
 *   : Name extends `${infer Tag extends keyof Tags}.${string}` ? Tags[Tag] : HTMLElement} ElementOf
 */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * Creates an HTML element. A property whose name begins with `on` is a listener, one that is null,
 * undefined or false is left out (`aria-pressed` may be false); the others are attributes.
 * @template {string} Name
 * @param {Name} name The tag, with classes after dots: `div.card.wide`.
 * @param {Record<string, any>} [properties]
 * @param {...Child} children
 * @returns {ElementOf<Name>}
 */
export function h(name, properties = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (tag === "button") element.setAttribute("type", "button");
  return /** @type {any} */ (filled(element, classes, properties, children));
}

/**
 * Creates an SVG element; see `h`.
 * @param {string} name
 * @param {Record<string, any>} [properties]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(name, properties = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  return filled(document.createElementNS(SVG_NAMESPACE, tag), classes, properties, children);
}

/**
 * @template {Element} Created
 * @param {Created} element
 * @param {string[]} classes
 * @param {Record<string, any>} properties
 * @param {Child[]} children
 */
function filled(element, classes, properties, children) {
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (key.startsWith("aria-")) element.setAttribute(key, String(value));
    else if (value === false) continue;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(/** @type {any} */ (element).style, value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...present(children));
  return element;
}

/** @param {Child[]} children @returns {(Node | string)[]} */
function present(children) {
  return children.filter((each) => typeof each === "string" || each instanceof Node);
}

/**
 * Replaces the children of an element. If the focused element was one of them, the new element
 * with the same `data-key` receives the focus, so that the keyboard stays where it was.
 * @param {Element} container
 * @param {...Child} children
 */
export function replaceContent(container, ...children) {
  const focused = document.activeElement;
  const key = focused && container.contains(focused) ? focused.getAttribute("data-key") : null;
  container.replaceChildren(...present(children));
  if (key === null) return;
  const again = container.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (again) /** @type {HTMLElement} */ (again).focus({ preventScroll: true });
}

/**
 * A drop-down list of names.
 * @param {string} label Read by screen readers.
 * @param {string[]} names
 * @param {string} chosen
 * @param {(name: string) => void} onChoose
 * @returns {HTMLElement}
 */
export function choice(label, names, chosen, onChoose) {
  const options = names.map((name) =>
    h("option", { value: name, selected: name === chosen }, shorten(name, 60)),
  );
  const onchange = () => onChoose(list.value);
  const list = h("select", { "aria-label": label, "data-key": label, onchange }, ...options);
  return list;
}

/**
 * A titled part of a view.
 * @param {string} name Classes, after dots.
 * @param {string} title
 * @param {Child} aside Beside the title.
 * @param {...Child} body
 * @returns {HTMLElement}
 */
export function card(name, title, aside, ...body) {
  const heading = h("header", {}, h("h2", {}, title), aside);
  return h(`section.card.${name}`, { "aria-label": title }, heading, ...body);
}

/**
 * A table whose first columns are text, and whose others are numbers. The first cell of a line is its title.
 * @param {string} name Its class.
 * @param {Child[]} titles
 * @param {number} texts How many columns are of text.
 * @param {(Child | Child[])[][]} lines What is in the cells.
 * @param {string} [none] In place of a table without lines.
 * @returns {HTMLElement}
 */
export function tableOf(name, titles, texts, lines, none) {
  if (!lines.length && none) return empty(none);
  const row = (/** @type {(Child | Child[])[]} */ line, /** @type {"col" | "row"} */ scope) =>
    h("tr", {}, ...line.map((content, place) => {
      const isTitle = scope === "col" || place === 0;
      const tag = `${isTitle ? "th" : "td"}${place < texts ? "" : ".number"}`;
      return h(tag, { scope: isTitle && scope }, ...[content].flat());
    }));
  const body = lines.map((line) => row(line, "row"));
  return h(`table.${name}`, {}, h("thead", {}, row(titles, "col")), h("tbody", {}, ...body));
}

/**
 * A list of named values, each with a remark in small text.
 * @param {([name: string, value: Child, about?: string] | null | false)[]} lines Null and false are left out.
 * @returns {HTMLElement}
 */
export function figures(lines) {
  return h("dl", {}, ...lines.map((line) =>
    line && h("div", {}, h("dt", {}, line[0]), h("dd", {}, line[1], h("small", {}, line[2])))));
}

/**
 * A region that scrolls; the keyboard can focus it.
 * @param {string} name Its class.
 * @param {string} label
 * @param {...Child} content
 * @returns {HTMLElement}
 */
export function scrolled(name, label, ...content) {
  return h(`div.${name}`, { tabindex: "0", role: "region", "aria-label": label }, ...content);
}

/** @param {string} text Why there is nothing here. @returns {HTMLElement} */
export function empty(text) {
  return h("p.empty", {}, text);
}

/**
 * Two buttons: to the one before, and to the next.
 * @param {string} what
 * @param {(step: number) => void} move
 * @returns {HTMLElement}
 */
export function pager(what, move) {
  const button = (/** @type {string} */ name, /** @type {string} */ sign, /** @type {number} */ step) =>
    h("button", {
      "aria-label": `${name} ${what}`, title: `${name} ${what} (${step < 0 ? "k" : "j"})`,
      "data-key": name, onclick: () => move(step),
    }, sign);
  return h("span.pager", {}, button("Previous", "←", -1), button("Next", "→", 1));
}

/**
 * @param {string} text
 * @param {number} length
 */
export function shorten(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

/**
 * Lets the arrow keys move between the elements of a group, of which the tab key reaches one.
 * @param {Element} group With its elements.
 * @param {string} selector
 */
export function useArrowKeys(group, selector) {
  const members = /** @type {HTMLElement[]} */ ([...group.querySelectorAll(selector)]);
  const current = members.find((each) => each === document.activeElement) ?? members[0];
  for (const each of members) each.setAttribute("tabindex", each === current ? "0" : "-1");
  group.addEventListener("keydown", (event) => {
    const { key, target } = /** @type {KeyboardEvent} */ (event);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
    const place = members.indexOf(/** @type {HTMLElement} */ (target));
    if (step === undefined || place < 0) return;
    event.preventDefault();
    const next = members[(place + step + members.length) % members.length];
    members[place].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}
