/** The page of a served environment: playing it by hand, its reward, and the server. */

import { h, replaceContent } from "./dom.js";
import { listenToKeys } from "./keys.js";
import { Live } from "./live.js";
import { Player } from "./player.js";
import { requestJson } from "./source.js";
import { statusNote } from "./status.js";
import { inline } from "./text.js";
import { themeButton } from "./theme.js";
import { Weights } from "./weights.js";

const TABS = /** @type {Record<string, string>} */ ({ play: "Play", reward: "Reward", server: "Server" });

/** The whole page. */
export class Play extends HTMLElement {
  #tabs = h("nav.tabs", { "aria-label": "Views" });
  #main = h("main", { tabindex: "-1" });
  #status = statusNote();
  #weights = new Weights();
  #live = new Live();

  async connectedCallback() {
    const theme = themeButton();
    this.append(this.#status);
    await this.#status.guard(async () => {
      const [{ name }, { action }] = await Promise.all([requestJson("../metadata"), requestJson("../schema")]);
      document.title = `${inline(name, 60).textContent} – guerdon`;
      const player = new Player(action, this.#status);
      const help = listenToKeys(this.#shortcuts(player, theme));
      const [brand, title] = [h("span.brand", {}, "guerdon"), h("span.file", {}, inline(name, 60))];
      this.prepend(h("header.bar", {}, brand, title, this.#tabs, player.connection, theme, help), this.#main);
      window.addEventListener("hashchange", () => this.#show(player));
      this.#show(player);
    });
  }

  /** @param {Player} player */
  #show(player) {
    const wanted = location.hash.slice(1);
    const tab = Object.hasOwn(TABS, wanted) ? wanted : "play";
    replaceContent(this.#tabs, ...Object.entries(TABS).map(([name, title]) =>
      h("a", { href: `#${name}`, "data-key": name, "aria-current": name === tab ? "page" : null }, title)));
    const views = /** @type {Record<string, HTMLElement>} */ ({ play: player, reward: this.#weights, server: this.#live });
    this.#main.replaceChildren(views[tab]);
    this.#main.dataset.view = tab;
    if (tab === "reward") this.#status.guard(() => this.#weights.show());
  }

  /** @param {Player} player @param {HTMLElement} theme The button. */
  #shortcuts(player, theme) {
    const open = (/** @type {string} */ tab) => () => {
      location.hash = tab;
    };
    return [
      { key: "Enter", about: "take the step (ctrl-Enter in a text of several lines)", run: () => player.submit("action") },
      { key: "r", about: "reset", run: () => player.submit("reset") },
      { key: "p", about: "play", run: open("play") },
      { key: "w", about: "weights of the reward", run: open("reward") },
      { key: "s", about: "the server", run: open("server") },
      { key: "t", about: "change the theme", run: () => theme.click() },
      { key: "Escape", about: "leave a field", run: () => /** @type {HTMLElement} */ (document.activeElement)?.blur() },
    ];
  }
}
customElements.define("g-play", Play);
document.body.append(new Play());
