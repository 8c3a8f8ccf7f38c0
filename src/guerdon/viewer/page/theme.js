/** The theme: that of the system, light or dark. The last choice is remembered in this browser. */

import { h } from "./dom.js";

const SIGNS = /** @type {Record<string, string>} */ ({ system: "◐", light: "☀", dark: "☾" });

/** @param {() => void} [onChange] @returns {HTMLElement} A button that changes the theme. */
export function themeButton(onChange = () => {}) {
  const names = Object.keys(SIGNS);
  const { dataset } = document.documentElement;
  const show = () => {
    button.replaceChildren(SIGNS[dataset.theme ?? ""]);
    for (const name of ["aria-label", "title"]) button.setAttribute(name, `Theme: ${dataset.theme}`);
  };
  const button = h("button.theme", {
    onclick: () => {
      dataset.theme = names[(names.indexOf(dataset.theme ?? "") + 1) % names.length];
      remembered(dataset.theme);
      show();
      onChange();
    },
  });
  const last = remembered() ?? "";
  dataset.theme = names.includes(last) ? last : "system";
  show();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onChange);
  return button;
}

/** @param {string} [chosen] Stored, if it is given. @returns {string | null} The last choice. */
function remembered(chosen) {
  try {
    if (chosen) localStorage.setItem("guerdon-theme", chosen);
    return localStorage.getItem("guerdon-theme");
  } catch { return null; // a report that was opened from a file may not store anything
  }
}
