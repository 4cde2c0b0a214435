// The random numbers that numpy's default_rng([seed, row]) draws: the same seed gives the same text as in Python.
// SeedSequence mixes the seed, PCG64 makes 64 bits at a time, and the ziggurat method makes exponential numbers of them.

const DIGITS = 8; // numbers of 128 bits are eight digits of 16 bits, the lowest first: their products are exact
const MULTIPLIER = digits(0x2360ed051fc65da44385df649fccf645n);

/** The random numbers of one text, which depend on nothing but the seed and the text's number. */
export class RowGenerator {
  #state;
  #spare = new Float64Array(DIGITS); // where the next state is written
  #increment;
  #high = 0; // the newest 64 bits, as two halves
  #low = 0;

  constructor(seed, row) {
    const entropy = seed === null ? [...crypto.getRandomValues(new Uint32Array(4))] : [...words(seed), ...words(row)];
    const [a, b, c, d] = seedWords(entropy);
    const increment = (((c << 64n) | d) << 1n) | 1n;
    this.#increment = digits(increment);
    this.#state = digits(increment + ((a << 64n) | b));
    this.#advance();
  }

  /** An exponential number of mean 1. */
  exponential() {
    for (;;) {
      const mantissa = this.#next();
      const layer = (this.#low >>> 3) & 0xff;
      const x = mantissa * TABLES.width[layer];
      if (mantissa < TABLES.inside[layer]) return x;
      if (layer === 0) return TAIL - Math.log1p(-this.#uniform());
      const { height } = TABLES;
      if ((height[layer - 1] - height[layer]) * this.#uniform() + height[layer] < Math.exp(-x)) return x;
    }
  }

  #uniform() {
    return this.#next() / 2 ** 53;
  }

  /** state × MULTIPLIER + increment, of which 128 bits are kept. */
  #advance() {
    const state = this.#state;
    const next = this.#spare;
    const increment = this.#increment;
    let carry = 0;
    for (let k = 0; k < DIGITS; k++) {
      let sum = carry + increment[k];
      for (let i = 0; i <= k; i++) sum += state[i] * MULTIPLIER[k - i];
      carry = Math.floor(sum / 0x10000);
      next[k] = sum - carry * 0x10000;
    }
    this.#state = next;
    this.#spare = state;
  }

  /** The next 64 bits, both halves of the state folded and turned; gives the upper 53 as a whole number. */
  #next() {
    this.#advance();
    const s = this.#state;
    let low = (s[0] ^ s[4]) | ((s[1] ^ s[5]) << 16);
    let high = (s[2] ^ s[6]) | ((s[3] ^ s[7]) << 16);
    const turn = s[7] >>> 10;
    if (turn & 32) [low, high] = [high, low];
    const by = turn & 31;
    if (by) [low, high] = [(low >>> by) | (high << (32 - by)), (high >>> by) | (low << (32 - by))];
    this.#high = high >>> 0;
    this.#low = low >>> 0;
    return this.#high * 2 ** 21 + (this.#low >>> 11);
  }
}

/** The lowest 128 bits of a number. */
function digits(number) {
  return Float64Array.from({ length: DIGITS }, (_, i) => Number((number >> BigInt(16 * i)) & 0xffffn));
}

/** A whole number as 32-bit words, the lowest first. */
function words(number) {
  const found = [];
  for (let rest = BigInt(number); rest || !found.length; rest >>= 32n) found.push(Number(rest & 0xffffffffn));
  return found;
}

/** Four 64-bit numbers of numpy's SeedSequence over a list of 32-bit words. */
function seedWords(entropy) {
  let constant = 0x43b0d7e5;
  const hashed = (value) => {
    value = (value ^ constant) >>> 0;
    constant = Math.imul(constant, 0x931e8875) >>> 0;
    value = Math.imul(value, constant) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
  const mixed = (x, y) => {
    const value = (Math.imul(x, 0xca01f9dd) - Math.imul(y, 0x4973f715)) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
  const pool = [0, 1, 2, 3].map((i) => hashed(entropy[i] ?? 0));
  for (let from = 0; from < 4; from++) {
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mixed(pool[to], hashed(pool[from]));
  }
  for (const word of entropy.slice(4)) for (let to = 0; to < 4; to++) pool[to] = mixed(pool[to], hashed(word));
  let second = 0x8b51f9dd;
  const output = Array.from({ length: 8 }, (_, i) => {
    let value = (pool[i % 4] ^ second) >>> 0;
    second = Math.imul(second, 0x58f38ded) >>> 0;
    value = Math.imul(value, second) >>> 0;
    return BigInt((value ^ (value >>> 16)) >>> 0);
  });
  return [0, 2, 4, 6].map((i) => output[i] | (output[i + 1] << 32n));
}

const TAIL = 7.69711747013104972; // where the ziggurat's lowest layer ends
const AREA = 3.9496598225815571993e-3; // of each of its 256 layers

/** The layers: how wide each is, how high, and how much of it lies wholly under the curve. */
const TABLES = (() => {
  const scale = 2 ** 53;
  const width = new Float64Array(256);
  const height = new Float64Array(256);
  const inside = new Float64Array(256);
  let [edge, before] = [TAIL, TAIL];
  const base = AREA / Math.exp(-edge);
  inside[0] = Math.floor((edge / base) * scale);
  width[0] = base / scale;
  width[255] = edge / scale;
  height[0] = 1;
  height[255] = Math.exp(-edge);
  for (let i = 254; i >= 1; i--) {
    edge = -Math.log(AREA / edge + Math.exp(-edge));
    inside[i + 1] = Math.floor((edge / before) * scale);
    before = edge;
    height[i] = Math.exp(-edge);
    width[i] = edge / scale;
  }
  inside[1] = 0;
  return { width, height, inside };
})();
