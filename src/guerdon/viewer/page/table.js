/** The columns of a file as typed arrays, and numbers computed from them. */

/** @typedef {import("./source.js").Source} Source */
/** @typedef {import("./source.js").FileInfo} FileInfo */
/** @typedef {import("./source.js").ColumnInfo} ColumnInfo */
/**
 * @typedef {{rows: number, count: number, mean: number, half: number, zeros: number}} Mean
 *   `count`: the rows with a number; `half`: half of the 95 % interval, NaN of less than two.
 */

/** The columns of a file; they are fetched when they are needed first. */
export class Table {
  /** @type {Map<string, Float64Array | Int32Array>} */ #arrays = new Map();
  /** @type {Map<string, Promise<unknown>>} */ #fetching = new Map();
  /** @type {Map<string, any>} */ #computed = new Map();

  /** @param {Source} source @param {FileInfo} info */
  constructor(source, info) {
    this.source = source;
    this.info = info;
    this.rows = info.rows;
    /** All rows, in the order of the file. */
    this.all = new Int32Array(info.rows).map((_, row) => row);
    /** @type {Map<string, ColumnInfo>} */
    this.columns = new Map(info.columns.map((each) => [each.name, each]));
  }

  /** Its name after its number, since several files may have the same name. */
  get title() {
    return `${this.info.index + 1}. ${this.info.name}`;
  }

  /** @param {string} name */
  has(name) {
    return this.columns.has(name);
  }

  /** @param {string} name @returns {ColumnInfo["type"] | undefined} Undefined if there is no such column. */
  type(name) {
    return this.columns.get(name)?.type;
  }

  /** @param {ColumnInfo["type"]} type @returns {string[]} */
  named(type) {
    return this.info.columns.filter((each) => each.type === type).map((each) => each.name);
  }

  /** The paths of the components. */
  get components() {
    return this.named("number").filter((name) => name.startsWith("components."));
  }

  /** The components, without what is inside a Gate: the value of both is mostly the same. */
  get distinctComponents() {
    return this.components.filter((name) => !name.endsWith(".rubric"));
  }

  /**
   * Fetches columns that are not there yet; names of other columns are ignored.
   * @param {string[]} names
   */
  async load(names) {
    const known = names.filter((name) => this.has(name) && this.type(name) !== "text");
    const missing = [...new Set(known)].filter((name) => !this.#fetching.has(name));
    if (missing.length) {
      const request = this.source.columns(this.info.index, missing).then((arrays) => {
        for (const [name, array] of arrays) this.#arrays.set(name, array);
      });
      for (const name of missing) this.#fetching.set(name, request);
      request.catch(() => missing.forEach((name) => this.#fetching.delete(name)));
    }
    await Promise.all(known.map((name) => this.#fetching.get(name)));
  }

  /** @param {string} name @returns {Float64Array} NaN where there is no number. */
  numbers(name) {
    return /** @type {Float64Array} */ (this.#arrays.get(name));
  }

  /** @param {string} name @returns {Int32Array} Indices into `values`, -1 where there is none. */
  codes(name) {
    return /** @type {Int32Array} */ (this.#arrays.get(name));
  }

  /** @param {string} name @returns {string[]} */
  values(name) {
    return this.columns.get(name)?.values ?? [];
  }

  /** @param {string} name @param {number} row @returns {string | undefined} The value of a row. */
  value(name, row) {
    return this.values(name)[this.codes(name)[row]];
  }

  /**
   * Computes something of the columns once.
   * @template Result
   * @param {string} key
   * @param {() => Result} compute Called the first time.
   * @returns {Result}
   */
  once(key, compute) {
    if (!this.#computed.has(key)) this.#computed.set(key, compute());
    return this.#computed.get(key);
  }

  /** @param {string} name @returns {[number, number]} The least and the greatest, or NaN. */
  extent(name) {
    return this.once(`extent ${name}`, () => extent(this.numbers(name)));
  }

  /** @param {string} name @returns {Binned} The bars of its histogram. */
  binned(name) {
    return this.once(`bins ${name}`, () => new Binned(this.numbers(name)));
  }

  /**
   * All rows in the order of a column; rows without a value are last in either direction.
   * @param {string} sort A column's name; a minus before it reverses the order.
   * @returns {Promise<Int32Array>}
   */
  order(sort) {
    const key = `order ${sort}`;
    const found = this.once(key, () => this.#computeOrder(sort.replace(/^-/, ""), sort.startsWith("-")));
    found.catch(() => this.#computed.delete(key));
    return found;
  }

  /** @param {string} name @param {boolean} isReversed @returns {Promise<Int32Array>} */
  async #computeOrder(name, isReversed) {
    if (!this.has(name)) return this.all;
    const sorted = await this.#sorted(name, isReversed);
    const hasValue = new Uint8Array(this.rows);
    for (const row of sorted) hasValue[row] = 1;
    const others = this.all.filter((row) => !hasValue[row]);
    const order = new Int32Array(sorted.length + others.length);
    order.set(sorted);
    order.set(others, sorted.length);
    return order;
  }

  /** @param {string} name @param {boolean} isReversed @returns {Promise<Int32Array>} The rows with a value. */
  async #sorted(name, isReversed) {
    if (this.type(name) === "text") {
      const sorted = await this.source.order(this.info.index, name);
      return isReversed ? sorted.toReversed() : sorted;
    }
    await this.load([name]);
    const ranks = this.ranks(name);
    const keys = this.type(name) === "number" ? this.numbers(name)
      : Float64Array.from(this.codes(name), (code) => ranks[code] ?? NaN);
    const sign = isReversed ? -1 : 1;
    return this.all.filter((row) => keys[row] === keys[row]).sort((a, b) => sign * (keys[a] - keys[b]) || a - b);
  }

  /** @param {string} name @returns {Float64Array} The place of each value among the sorted values. */
  ranks(name) {
    return this.once(`ranks ${name}`, () => {
      const values = this.values(name);
      const { compare } = new Intl.Collator("en", { numeric: true });
      const places = [...values.keys()].sort((a, b) => compare(values[a], values[b]));
      const ranks = new Float64Array(values.length);
      places.forEach((code, place) => (ranks[code] = place));
      return ranks;
    });
  }
}

/**
 * The means of the numbers of each value of a category, with 95 % intervals: ± 1.96 s / √n. A mean is
 * the sum divided by the number, as in the tables of the commands, so that both round alike.
 * @param {Int32Array} codes
 * @param {number} size How many values there are.
 * @param {Float64Array | null} numbers NaN is left out.
 * @param {Int32Array} rows
 * @returns {Mean[]}
 */
export function meansBy(codes, size, numbers, rows) {
  const [all, counts, zeros] = [new Int32Array(size), new Int32Array(size), new Int32Array(size)];
  const [sums, means, squares] = [new Float64Array(size), new Float64Array(size), new Float64Array(size)];
  for (const row of rows) {
    const code = codes[row];
    if (code < 0) continue;
    all[code]++;
    const value = numbers ? numbers[row] : NaN;
    if (value !== value) continue;
    if (value === 0) zeros[code]++;
    sums[code] += value;
    const offset = value - means[code];
    means[code] += offset / ++counts[code];
    squares[code] += offset * (value - means[code]);
  }
  return Array.from(all, (rows, code) => {
    const count = counts[code];
    const half = 1.96 * Math.sqrt(squares[code] / (count - 1) / count);
    return { rows, count, mean: sums[code] / count, half, zeros: zeros[code] };
  });
}

/** @param {Float64Array} numbers @param {Int32Array} rows @returns {Mean} As `meansBy`, of all rows. */
export function meanOf(numbers, rows) {
  return meansBy(new Int32Array(numbers.length), 1, numbers, rows)[0];
}

/**
 * Pearson's correlation over the rows that have both numbers.
 * @param {Float64Array} x
 * @param {Float64Array} y
 * @param {Int32Array} rows
 * @returns {number} NaN where one of them doesn't vary.
 */
export function correlation(x, y, rows) {
  let [n, meanX, meanY, xx, yy, xy] = [0, 0, 0, 0, 0, 0];
  for (const row of rows) {
    const [offset, other] = [x[row] - meanX, y[row] - meanY];
    if (offset !== offset || other !== other) continue;
    meanX += offset / ++n;
    meanY += other / n;
    xx += offset * (x[row] - meanX);
    yy += other * (y[row] - meanY);
    xy += offset * (y[row] - meanY);
  }
  return xx > 0 && yy > 0 ? xy / Math.sqrt(xx * yy) : NaN;
}

/** @param {Float64Array} numbers @returns {[number, number]} The least and the greatest, or NaN. */
export function extent(numbers) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of numbers) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [NaN, NaN];
}

/** @typedef {{low: number, high: number, text: string}} Bin */

/**
 * The bars of a histogram: one for each value if there are few, else intervals of a round width.
 * Zeros are apart, so that a 0 isn't mixed with what is almost 0.
 * @param {Float64Array} numbers
 * @param {number} [most]
 * @returns {Bin[]} Each with the text of its filter.
 */
function binsOf(numbers, most = 24) {
  /** @type {Set<number>} */
  const distinct = new Set();
  for (const value of numbers) {
    if (value === value) distinct.add(value + 0);
    if (distinct.size > 16) break;
  }
  if (distinct.size <= 16) {
    const single = [...distinct].sort((a, b) => a - b);
    return single.map((value) => ({ low: value, high: value, text: `[${value},${value}]` }));
  }
  const [least, greatest] = extent(numbers);
  const width = roundStep(Math.max(greatest - least, roundingOf(least, greatest)) / most);
  const first = Math.floor(least / width);
  const last = Math.max(Math.ceil(greatest / width), first + 1);
  /** @type {Bin[]} */
  const bins = [];
  for (let place = first; place < last; place++) {
    const [low, high] = [multiple(place, width), multiple(place + 1, width)];
    if (low === 0) bins.push({ low: 0, high: 0, text: "[0,0]" });
    const closing = place === last - 1 && high !== 0 ? "]" : ")";
    bins.push({ low, high, text: `${low === 0 ? "(" : "["}${low},${high}${closing}` });
  }
  if (last === 0) bins.push({ low: 0, high: 0, text: "[0,0]" });
  return bins;
}

/** @param {number} low @param {number} high @returns {number} A difference of them that may be due to rounding. */
export function roundingOf(low, high) {
  return 1e-9 * Math.max(Math.abs(low), Math.abs(high));
}

/** @param {number} least @returns {number} 1, 2 or 5 times a power of ten, at least the argument. */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * (/** @type {number} */ ([1, 2, 5, 10].find((each) => each * power >= least * 0.999)));
}

/** @param {number} place @param {number} width @returns {number} Their product, such as 0.3 for 3 × 0.1. */
export function multiple(place, width) {
  return Number((place * width).toPrecision(12));
}

/** The bars of a histogram, and which of them each row belongs to. */
export class Binned {
  /** @param {Float64Array} numbers */
  constructor(numbers) {
    this.bins = binsOf(numbers);
    const none = this.bins.length;
    this.places = Uint8Array.from(numbers, (value) => (value === value ? placeIn(this.bins, value) : none));
    /** How many rows each bin has; the last entry is of no number. */
    this.whole = new Int32Array(none + 1);
    for (const place of this.places) this.whole[place]++;
  }

  /** @param {Int32Array} rows @returns {Int32Array} As `whole`, of these rows. */
  count(rows) {
    const counts = new Int32Array(this.whole.length);
    for (const row of rows) counts[this.places[row]]++;
    return counts;
  }
}

/** @param {Bin[]} bins @param {number} value */
function placeIn(bins, value) {
  let [low, high] = [0, bins.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    const bin = bins[middle];
    const isAfter = bin.low === bin.high ? value > bin.high : value >= bin.high;
    if (isAfter) low = middle + 1;
    else high = middle;
  }
  return low;
}
