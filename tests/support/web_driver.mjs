// Runs the bodies of functions that a test sends, one line of JSON each, with the modules of web/ at hand.
import { createInterface } from "node:readline";
import { setFlagsFromString } from "node:v8";

setFlagsFromString("--liftoff-only"); // the runtime's WebAssembly is then compiled in 2 s instead of 9
const web = new URL("../../web/", import.meta.url);
const use = (name) => import(new URL(name, web));
const AsyncFunction = (async () => {}).constructor;
const kept = {}; // what a body leaves for the next

for await (const line of createInterface({ input: process.stdin })) {
  const { body, data } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await new AsyncFunction("use", "data", "kept", body)(use, data, kept)) ?? null };
  } catch (error) {
    answer = { error: { name: error.name, message: error.message, template: error.template, stack: error.stack } };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
