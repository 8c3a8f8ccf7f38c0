/** The page: its bar, its filters, and the view that the address names. */

import { Address, filterKey } from "./address.js";
import { DiffView } from "./diff.js";
import { choice, h, replaceContent } from "./dom.js";
import { inWords, testsOf } from "./filters.js";
import { GroupView } from "./group.js";
import { listenToKeys } from "./keys.js";
import { List, RETRY } from "./list.js";
import { Overview } from "./overview.js";
import { RolloutView } from "./rollout.js";
import { EmbeddedSource, HttpSource } from "./source.js";
import { statusNote } from "./status.js";
import { Table } from "./table.js";
import { count, inline } from "./text.js";
import { themeButton } from "./theme.js";
import { ArenaView, TrainingView } from "./training.js";

/**
 * @typedef {object} Context What a view shows.
 * @property {Table} table The file.
 * @property {Table[]} tables All files.
 * @property {Int32Array} rows The rows that the filters keep, in order.
 * @property {Address} address
 */
/** @typedef {HTMLElement & {show: (context: Context) => unknown, move?: (step: number) => void,
 *   open?: () => void}} View */

/** The views of each kind of file; the first is the one to begin with. */
const VIEWS = /** @type {Record<string, string[]>} */ ({
  rows: ["overview", "list", "rollout", "group", "diff"],
  diff: ["diff", "overview", "list"],
  log: ["training"],
  arena: ["arena"],
});
const SEARCH_DELAY = 250; // milliseconds
const IN_FILE = "place in the file"; // the order without a column

/** The whole page. */
export class App extends HTMLElement {
  #address = new Address();
  /** @type {import("./source.js").Source} */ #source = new HttpSource();
  /** @type {Table[]} */ #tables = [];
  /** @type {Record<string, View>} */ #views = {
    overview: new Overview(), list: new List(), rollout: new RolloutView(), group: new GroupView(),
    diff: new DiffView(), training: new TrainingView(), arena: new ArenaView(),
  };
  #below = new List();
  #files = h("div.files");
  #tabs = h("nav.tabs", { "aria-label": "Views" });
  #search = h("input", { type: "search", placeholder: "Search ids and messages", "aria-label": "Search ids and messages" });
  #theme = themeButton();
  #chips = h("div.chips", { role: "group", "aria-label": "Filters" });
  #main = h("main", { tabindex: "-1" });
  #status = statusNote();
  #update = 0;
  /** @type {{key: string, rows: Int32Array, isCut: boolean} | null} */ #selected = null;

  async connectedCallback() {
    const help = listenToKeys(this.#shortcuts());
    this.append(
      h("header.bar", {}, h("span.brand", {}, "guerdon"), this.#files, this.#tabs, this.#search, this.#theme, help),
      this.#chips, this.#main, this.#status);
    let delay = 0;
    this.#search.addEventListener("input", () => {
      clearTimeout(delay);
      delay = setTimeout(() => this.#address.replace({ q: this.#search.value }), SEARCH_DELAY);
    });
    this.#address.addEventListener("change", () => this.#show());
    document.addEventListener("theme", () => this.#show());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#show());
    await this.#status.guard(async () => {
      const embedded = document.getElementById("data");
      if (embedded) this.#source = await EmbeddedSource.open(embedded.textContent ?? "");
      this.#tables = (await this.#source.files()).map((info) => new Table(this.#source, info));
      this.#show();
      if (this.#source.isLive) this.#follow();
    });
  }

  /** The file that the address names. */
  get #table() {
    return this.#tables[this.#address.integer("file") ?? 0] ?? this.#tables[0];
  }

  /** Whether the rows of the file can be listed and filtered. */
  get #hasList() {
    return VIEWS[this.#table.info.kind].includes("list");
  }

  get #view() {
    const views = VIEWS[this.#table.info.kind];
    const wanted = this.#address.get("view");
    return views.includes(wanted) ? wanted : views[0];
  }

  #show() {
    return this.#status.guard(async () => {
      const update = ++this.#update;
      const table = this.#table;
      if (table === undefined) throw new Error("there is no file to show");
      this.#showBar();
      const selected = await this.#select(table);
      if (update !== this.#update) return;
      this.#showChips(table, selected);
      const context = { table, tables: this.#tables, rows: selected.rows, address: this.#address };
      const name = this.#view;
      const view = this.#views[name];
      const shown = name === "overview" ? [view, this.#below] : [view];
      if (this.#main.firstElementChild !== view || this.#main.childElementCount !== shown.length) {
        this.#main.replaceChildren(...shown);
        this.#main.dataset.view = name;
        window.scrollTo(0, 0);
      }
      await Promise.all(shown.map((each) => each.show(context)));
      document.title = `${inline(table.info.name, 60).textContent} – guerdon`;
      this.toggleAttribute("ready", update === this.#update);
    });
  }

  /** @param {Table} table The rows that filters and search keep, in order. */
  async #select(table) {
    const { filters } = this.#address;
    const [sort, text] = [this.#address.get("sort"), this.#address.get("q")];
    const key = JSON.stringify([table.info.index, table.info.version, [...filters], sort, text]);
    if (this.#selected?.key === key) return this.#selected;
    await table.load([...filters.keys()]);
    const tests = testsOf(table, filters);
    const found = text ? await this.#source.search(table.info.index, text) : null;
    const isCut = found?.isCut ?? false;
    if (found) {
      const wanted = new Set(found.rows);
      tests.push((row) => wanted.has(row));
    }
    const order = await table.order(sort);
    const rows = tests.length ? order.filter((row) => tests.every((test) => test(row))) : order;
    this.#selected = { key, rows, isCut };
    return this.#selected;
  }

  #showBar() {
    const { info } = this.#table;
    const titles = this.#tables.map((each) => each.title);
    replaceContent(this.#files, titles.length > 1
      ? choice("File", titles, titles[info.index], (title) => (location.hash = `#file=${titles.indexOf(title)}`))
      : h("span.file", { title: info.name }, inline(info.name, 60)));
    const canDiff = info.kind === "diff" || this.#tables.filter((each) => each.info.kind === "rows").length > 1;
    const views = VIEWS[info.kind].filter((name) => name !== "diff" || canDiff);
    const current = this.#view;
    replaceContent(this.#tabs, ...views.map((name) => h("a", {
      href: this.#address.link({ view: name, step: null }), "data-key": `tab ${name}`,
      "aria-current": name === current ? "page" : null,
    }, name[0].toUpperCase() + name.slice(1))));
    if (document.activeElement !== this.#search) this.#search.value = this.#address.get("q");
    this.#search.hidden = !this.#hasList;
    this.#chips.hidden = !this.#hasList && !info.note;
  }

  /** @param {Table} table @param {{rows: Int32Array, isCut: boolean}} selected */
  #showChips(table, { rows, isCut }) {
    const { filters } = this.#address;
    const text = this.#address.get("q");
    const chips = [...filters].map(([name, values]) => ({ key: filterKey(name), about: inWords(name, values) }));
    if (text) chips.push({ key: "q", about: `text: ${text}` });
    const remove = (/** @type {string[]} */ keys) => () =>
      this.#address.change(Object.fromEntries(keys.map((key) => [key, null])));
    const size = table.rows === 1 ? "1 row" : `${count(table.rows)} rows`;
    const { note = "" } = table.info;
    if (!this.#hasList) return replaceContent(this.#chips, h("span.muted", {}, inline(note, 300)));
    replaceContent(this.#chips,
      h("span.amount", {}, rows.length === table.rows ? size : `${count(rows.length)} of ${size}`),
      ...chips.map(({ key, about }) => h("button.chip", {
        "data-key": `chip ${key}`, title: "Remove this filter", onclick: remove([key]),
      }, inline(about, 80), h("span", { "aria-hidden": "true" }, " ×"))),
      chips.length > 1
        && h("button.link", { "data-key": "clear", onclick: remove(chips.map(({ key }) => key)) }, "clear all"),
      isCut && h("span.muted", {}, "the search took too long and is incomplete"),
      note && h("span.muted", {}, inline(note, 300)),
      this.#sortControls(table));
  }

  /** @param {Table} table */
  #sortControls(table) {
    const sort = this.#address.get("sort");
    const [name, isDown] = [sort.replace(/^-/, ""), sort.startsWith("-")];
    const order = (/** @type {string | null} */ sort) => this.#address.replace({ sort });
    const names = [IN_FILE, ...table.columns.keys()];
    return h("span.sort", {}, h("span.muted", {}, "sort by"),
      choice("Sort by", names, name || IN_FILE, (chosen) => order(chosen === IN_FILE ? null : chosen)),
      h("button", {
        "aria-label": "Reverse the order", title: "Reverse the order", "data-key": "reverse",
        disabled: !name, onclick: () => order(isDown ? name : `-${name}`),
      }, isDown ? "↓" : "↑"));
  }

  /** Shows what files have once they have changed. */
  async #follow() {
    let isLost = false; // whether the files, or the server, can't be read
    while (this.isConnected) {
      try {
        const versions = await this.#source.changes(this.#tables.map(({ info }) => info.version));
        if (!isLost && versions.every((version, place) => version === this.#tables[place].info.version)) continue;
        isLost = false;
        const infos = await this.#source.files();
        this.#tables = this.#tables.map((table, place) =>
          infos[place].version === table.info.version ? table : new Table(this.#source, infos[place]));
        await this.#show();
      } catch (error) {
        isLost = true;
        this.#status.report(error);
        await new Promise((resolve) => setTimeout(resolve, RETRY));
      }
    }
  }

  #shortcuts() {
    const move = (/** @type {number} */ step) => () => this.#moved?.move?.(step);
    const views = VIEWS.rows.map((view) =>
      ({ key: view[0], about: view, run: () => this.#address.change({ view, step: null }) }));
    return [
      { key: "j", about: "next row, or next group", run: move(1) },
      { key: "k", about: "previous row, or previous group", run: move(-1) },
      { key: "Enter", about: "open the row", run: () => this.#moved?.open?.() },
      { key: "/", about: "search", run: () => this.#search.focus() },
      ...views,
      { key: "t", about: "change the theme", run: () => this.#theme.click() },
      { key: "Escape", about: "leave the search, or the rollout", run: () => this.#leave() },
    ];
  }

  /** What the keys act on. */
  get #moved() {
    return /** @type {View | null} */ (this.#main.querySelector("g-list") ?? this.#main.firstElementChild);
  }

  #leave() {
    if (document.activeElement === this.#search) this.#search.blur();
    else if (this.#view === "rollout") this.#address.change({ view: "list", step: null });
  }
}
customElements.define("g-app", App);
document.body.append(new App());
