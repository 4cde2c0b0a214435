// Errors and notices are values: an English template with named places, what stands in them, and the whole sentence.
// A page translates by the template, never by the words.

/** A sentence for people, as a plain object that a worker can send. A value may be such a sentence itself. */
export function sentence(template, values = {}) {
  const text = template.replace(/\{\{|\}\}|\{(\w+)\}/g, (found, name) => {
    if (!name) return found[0];
    const value = values[name];
    return String(value?.template ? value.text : value);
  });
  return { template, values, text };
}

/** What is wrong, where, and what to do: `message` is the sentence, `template` and `values` are for translation. */
export class ModelError extends Error {
  constructor(template, values = {}) {
    const { text } = sentence(template, values);
    super(text);
    this.name = "ModelError";
    this.template = template;
    this.values = values;
  }
}

/** Whether an error says that the caller stopped the work. */
export function isAbort(error) {
  return error?.name === "AbortError";
}
