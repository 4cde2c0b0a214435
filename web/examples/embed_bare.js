// Translate with onnxruntime-web and one file of ours, the tokenizer: node web/examples/embed_bare.js FOLDER TEXT
import { readFile } from "node:fs/promises";
import { InferenceSession, Tensor, env } from "onnxruntime-web/wasm";
import { Tokenizer } from "../tokenizer.js";

const [folder, text] = process.argv.slice(2);
const json = async (name) => JSON.parse(await readFile(`${folder}/${name}`, "utf8"));
const [config, settings] = [await json("config.json"), await json("generation.json")];
const tokenizer = new Tokenizer(await json("tokenizer.json"), config.output_vocab_size);
const ints = (ids) => new Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]);

env.wasm.numThreads = 1;
const data = new Uint8Array(await readFile(`${folder}/model.safetensors`)); // where both graphs find their weights
const open = async (graph) =>
  InferenceSession.create(new Uint8Array(await readFile(`${folder}/${graph}`)), {
    externalData: [{ path: "model.safetensors", data }],
  });
const [encoder, decoder] = [await open("encoder_model.onnx"), await open("decoder_model.onnx")];

const source = [...tokenizer.encode(text).slice(0, settings.max_source_tokens - 1), settings.eos_id];
const mask = ints(source.map(() => 1));
const memory = await encoder.run({ input_ids: ints(source), attention_mask: mask });
const feeds = { encoder_attention_mask: mask };
for (const [name, value] of Object.entries(memory)) feeds[name.replace("present", "past_key_values")] = value;
const empty = new Tensor("float32", [], [1, config.n_heads, 0, config.d_model / config.n_heads]);
for (const name of decoder.inputNames) if (name.includes(".decoder.")) feeds[name] = empty;

const written = [];
let token = settings.bos_id;
for (let position = 0; position < settings.max_new_tokens && position < config.max_length; position++) {
  const found = await decoder.run({ ...feeds, input_ids: ints([token]), position_ids: ints([position]) });
  token = found.logits.data.indexOf(Math.max(...found.logits.data));
  if (token === settings.eos_id) break;
  written.push(token);
  for (const name of decoder.outputNames) {
    if (name !== "logits") feeds[name.replace("present", "past_key_values")] = found[name];
  }
}
console.log(tokenizer.decode(written));
