/** Failures that concern the whole page. */

import { h } from "./dom.js";
import { inline } from "./text.js";

/** A note over the page with the failure of the last task. */
export class Status extends HTMLElement {
  /** @param {() => Promise<unknown>} task Its failure is shown. */
  async guard(task) {
    try {
      await task();
      this.replaceChildren();
    } catch (error) {
      this.report(error);
    }
  }

  /** @param {unknown} error Shown until the next task has ended. */
  report(error) {
    const text = error instanceof Error ? error.message : String(error);
    this.replaceChildren(h("p.note.is-failed", {}, h("b", {}, "error: "), inline(text, 1000)));
  }
}
customElements.define("g-status", Status);

/** @returns {Status} */
export function statusNote() {
  return /** @type {Status} */ (h("g-status.status", { role: "status" }));
}
