/** Notes about failures. */

import { h } from "./dom.js";
import { inline } from "./text.js";

/** A note over the page with the failure of the last task. */
export class Status extends HTMLElement {
  /** @param {() => Promise<unknown>} task Its failure is shown. @param {string} [title] Before the error. */
  async guard(task, title = "error") {
    try {
      await task();
      this.replaceChildren();
    } catch (error) {
      this.report(error, title);
    }
  }

  /** @param {unknown} error Shown until the next task has ended. @param {string} [title] Before the error. */
  report(error, title = "error") {
    this.replaceChildren(failureNote(error instanceof Error ? error.message : error, title));
  }
}
customElements.define("g-status", Status);

/** @param {unknown} error @param {string} [title] @param {number} [length] @returns {HTMLElement} */
export function failureNote(error, title = "failed", length = 4000) {
  return h("p.note.is-failed", {}, h("b", {}, inline(title), ": "), inline(error, length));
}

/** @returns {Status} */
export function statusNote() {
  return /** @type {Status} */ (h("g-status.status", { role: "status" }));
}
