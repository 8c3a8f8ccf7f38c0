/** The arithmetic of advantages: from the recorded numbers back to the formula. */

/**
 * @typedef {{score: number, row: number, steps: StepNumbers[]}} Scored A rollout with a valid score.
 * @typedef {import("./rollout.js").StepNumbers} StepNumbers
 * @typedef {{mean: number, deviation: number, divisor: number, divisorName: string,
 *   of: (value: number) => number}} Statistics `divisorName` is empty if nothing is divided.
 * @typedef {{name: string, scores: Statistics | null, returns: ((step: StepNumbers) => Statistics) | null,
 *   omega: number | null}} Formula `returns`: the statistics that a step's return is compared with.
 */

const EPSILON = 1e-6; // added to a deviation before dividing by it
const TOLERANCE = 2e-6;

/**
 * The mean and the unbiased deviation of values, and what a value is relative to them.
 * @param {number[]} values
 * @param {boolean} isDivided Whether the difference is divided by the deviation.
 * @returns {Statistics}
 */
export function statisticsOf(values, isDivided) {
  const offset = values[0] ?? 0;
  const mean = offset + values.reduce((sum, each) => sum + (each - offset), 0) / Math.max(values.length, 1);
  const squares = values.reduce((sum, each) => sum + (each - mean) ** 2, 0);
  const isSame = values.every((each) => each === offset);
  const deviation = isSame ? 0 : Math.sqrt(squares / Math.max(values.length - 1, 1));
  const divisor = isDivided ? deviation + EPSILON : 1;
  const divisorName = isDivided ? "(σ + 10⁻⁶)" : "";
  return { mean, deviation, divisor, divisorName, of: (value) => (isSame ? 0 : (value - mean) / divisor) };
}

/**
 * The formula that gives the recorded advantages of a group, if it is one of those known here.
 * @param {Scored[]} rollouts
 * @returns {Formula | null}
 */
export function formulaOf(rollouts) {
  const steps = rollouts.flatMap(({ score, steps: own }) => own.filter(isCredited).map((step) => ({ score, step })));
  if (!steps.length) return null;
  const candidates = [...gigpo(rollouts, steps), ...outcomes(rollouts), ...ofReturns(steps)];
  return candidates.find((formula) =>
    steps.every(({ score, step }) => {
      const wanted = /** @type {number} */ (step.advantage);
      return Math.abs(advantageOf(formula, score, step) - wanted) <= TOLERANCE * (1 + Math.abs(wanted));
    })) ?? null;
}

/** @param {StepNumbers} step */
function isCredited(step) {
  return step.advantage !== null && step.return_ !== null;
}

/** @param {Formula} formula @param {number} score @param {StepNumbers} step @returns {number} */
export function advantageOf({ scores, returns, omega }, score, step) {
  const episode = scores ? scores.of(score) : 0;
  const own = returns ? returns(step).of(step.return_ ?? 0) : 0;
  return scores && returns ? episode + (omega ?? 0) * own : episode + own;
}

/** @typedef {{score: number, step: StepNumbers}} Entry */

/** @param {Scored[]} rollouts @param {Entry[]} steps @returns {Formula[]} */
function gigpo(rollouts, steps) {
  if (!steps.some(({ step }) => step.anchor !== null)) return [];
  return [true, false].flatMap((isDivided) =>
    [rollouts.map((each) => each.score), steps.map((each) => each.score)].map((values, place) => {
      const scores = statisticsOf(values, isDivided);
      const anchors = new Map([...Map.groupBy(steps, ({ step }) => step.anchor)].map(([anchor, own]) =>
        [anchor, statisticsOf(own.map(({ step }) => step.return_ ?? 0), isDivided)]));
      const returns = (/** @type {StepNumbers} */ step) => /** @type {Statistics} */ (anchors.get(step.anchor));
      const name = `GiGPO${isDivided ? "" : ", normalize=mean"}${place ? ", episode_stats=rows" : ""}`;
      return { name, scores, returns, omega: omegaOf(steps, scores, returns) };
    }));
}

/**
 * The weight of the step's part that fits the recorded advantages best.
 * @param {Entry[]} steps
 * @param {Statistics} scores
 * @param {(step: StepNumbers) => Statistics} returns
 */
function omegaOf(steps, scores, returns) {
  let [above, below] = [0, 0];
  for (const { score, step } of steps) {
    const own = returns(step).of(step.return_ ?? 0);
    above += ((step.advantage ?? 0) - scores.of(score)) * own;
    below += own * own;
  }
  return below > 0 ? Number((above / below).toPrecision(6)) : 1;
}

/** @param {Scored[]} rollouts @returns {Formula[]} */
function outcomes(rollouts) {
  const values = rollouts.map((each) => each.score);
  const mean = statisticsOf(values, false);
  const divisor = (values.length - 1) / values.length;
  const of = (/** @type {number} */ value) => mean.of(value) / (divisor || 1);
  const common = { returns: null, omega: null };
  return [
    { name: "GRPO", scores: statisticsOf(values, true), ...common },
    { name: "Dr. GRPO", scores: mean, ...common },
    { name: "RLOO", scores: { ...mean, divisor, divisorName: "((n − 1) / n)", of }, ...common },
  ];
}

/** @param {Entry[]} steps @returns {Formula[]} */
function ofReturns(steps) {
  const values = steps.map(({ step }) => step.return_ ?? 0);
  return [true, false].map((isDivided) => {
    const own = statisticsOf(values, isDivided);
    return { name: "returns relative to the group", scores: null, returns: () => own, omega: null };
  });
}
