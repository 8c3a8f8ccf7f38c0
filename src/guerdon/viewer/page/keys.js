/** Keyboard shortcuts. */

import { h } from "./dom.js";

/** @typedef {{key: string, about: string, run: () => void}} Shortcut */

/**
 * Listens to shortcuts, except while text is typed; `?` lists them.
 * @param {Shortcut[]} shortcuts
 * @returns {HTMLElement} A button that lists them, too.
 */
export function listenToKeys(shortcuts) {
  const showHelp = () => {
    const lines = [...shortcuts, help].flatMap(({ key, about }) =>
      [h("dt", {}, h("kbd", {}, key)), h("dd", {}, about)]);
    const close = () => dialog.close();
    const dialog = h("dialog.keys", { "aria-label": "Keyboard shortcuts", onclose: () => dialog.remove() },
      h("h2", {}, "Keyboard"), h("dl", {}, ...lines), h("button", { onclick: close }, "Close"));
    document.body.append(dialog);
    dialog.showModal();
  };
  const help = { key: "?", about: "show this list", run: showHelp };
  document.addEventListener("keydown", (event) => {
    const target = /** @type {Element} */ (event.composedPath()[0]);
    const isTyped = target.matches?.("input:not([type=range], [type=checkbox]), select, textarea") && event.key !== "Escape";
    const isPressed = event.key === "Enter" && /^(?:BUTTON|A|SUMMARY)$/.test(target.tagName ?? "");
    const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
    if (isTyped || isPressed || hasModifier || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    const found = [...shortcuts, help].find(({ key }) => key === event.key);
    if (found === undefined) return;
    event.preventDefault();
    found.run();
  });
  const title = "Keyboard shortcuts";
  return h("button", { title: `${title} (?)`, "aria-label": title, onclick: showHelp }, "?");
}
