// The random numbers that numpy's default_rng([seed, row]) draws: the same seed gives the same text as in Python.
// SeedSequence mixes the seed, PCG64 makes 64 bits at a time, and the ziggurat method makes exponential numbers of them.

const MASK32 = 0xffffffffn;
const MASK64 = (1n << 64n) - 1n;
const MASK128 = (1n << 128n) - 1n;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;

/** The random numbers of one text, which depend on nothing but the seed and the text's number. */
export class RowGenerator {
  #state;
  #increment;

  constructor(seed, row) {
    const entropy = seed === null ? [...crypto.getRandomValues(new Uint32Array(4))] : [...words(seed), ...words(row)];
    const [a, b, c, d] = seedWords(entropy);
    this.#increment = (((c << 64n) | d) << 1n) | 1n;
    this.#increment &= MASK128;
    this.#state = (this.#increment + ((a << 64n) | b)) & MASK128;
    this.#advance();
  }

  /** An exponential number of mean 1. */
  exponential() {
    for (;;) {
      const bits = this.#next() >> 3n;
      const layer = Number(bits & 0xffn);
      const mantissa = Number(bits >> 8n);
      const x = mantissa * TABLES.width[layer];
      if (mantissa < TABLES.inside[layer]) return x;
      if (layer === 0) return TAIL - Math.log1p(-this.#uniform());
      const { height } = TABLES;
      if ((height[layer - 1] - height[layer]) * this.#uniform() + height[layer] < Math.exp(-x)) return x;
    }
  }

  #uniform() {
    return Number(this.#next() >> 11n) / 2 ** 53;
  }

  #advance() {
    this.#state = (this.#state * MULTIPLIER + this.#increment) & MASK128;
  }

  #next() {
    this.#advance();
    const folded = (this.#state >> 64n) ^ (this.#state & MASK64);
    const turn = this.#state >> 122n;
    return ((folded >> turn) | (folded << (64n - turn))) & MASK64;
  }
}

/** A whole number as 32-bit words, the lowest first. */
function words(number) {
  const found = [];
  for (let rest = BigInt(number); rest || !found.length; rest >>= 32n) found.push(Number(rest & MASK32));
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
