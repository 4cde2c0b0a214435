// Translate or chat with the modules of web/: node web/examples/embed.js FOLDER TEXT
import { loadModel } from "../index.js";

const [folder, text] = process.argv.slice(2);
const model = await loadModel(folder); // a path or an address
const onToken = ({ text }) => process.stdout.write(text); // as it is written
const { notices } = await model.generate(text, { max_new_tokens: 100 }, { onToken });
process.stdout.write("\n");
for (const notice of notices) console.error(notice.text);
await model.close();
