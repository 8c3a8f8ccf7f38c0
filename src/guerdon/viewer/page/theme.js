/** The theme: light, dark, or that of the system. */

import { h } from "./dom.js";

const SIGNS = /** @type {Record<string, string>} */ ({ system: "◐", light: "☀", dark: "☾" });

/**
 * A button that changes the theme; the browser keeps the choice.
 * @returns {HTMLElement}
 */
export function themeButton() {
  const themes = Object.keys(SIGNS);
  const button = h("button.theme", {
    onclick: () => set(themes[(themes.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % themes.length]),
  });
  const set = (/** @type {string} */ theme) => {
    const known = Object.hasOwn(SIGNS, theme) ? theme : "system";
    document.documentElement.dataset.theme = known;
    button.replaceChildren(SIGNS[known]);
    button.setAttribute("aria-label", `Theme: ${known}`);
    button.setAttribute("title", `Theme: ${known}`);
    storedTheme(known);
    document.dispatchEvent(new Event("theme"));
  };
  set(storedTheme() ?? "system");
  return button;
}

/**
 * The theme that was chosen last, in this browser.
 * @param {string} [chosen] Stored, if it is given.
 * @returns {string | null}
 */
function storedTheme(chosen) {
  try {
    if (chosen) localStorage.setItem("guerdon-theme", chosen);
    return localStorage.getItem("guerdon-theme");
  } catch {
    return null; // a report that was opened from a file may not store anything
  }
}
