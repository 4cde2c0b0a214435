// From what a caller says to what the model reads: ids of source and prefix that fit the context.
import { ModelError, sentence } from "./errors.js";

const ROLES = ["user", "assistant", "system"];

/** The prompt `{ prefix, source, notices }` for a text or a dialogue, by the model's task. */
export function promptFor(tokenizer, config, generation, content, { maxNewTokens } = {}) {
  const { task } = generation;
  // Cache slots kept free for the answer: as many as are wanted, but never more than half the context.
  const reserved = Math.min(maxNewTokens ?? generation.max_new_tokens, Math.floor(config.max_length / 2));
  if (task === "chat") {
    const dialogue = typeof content === "string" ? [{ role: "user", content }] : content;
    const { ids, notices } = fitDialogue(tokenizer, dialogue, config.max_length, reserved);
    return { prefix: ids, source: null, notices };
  }
  if (typeof content !== "string") {
    throw new ModelError("A model for {task} takes a text, not {kind}; pass a string.", { task, kind: typeof content });
  }
  if (!content) throw new ModelError("The text is empty; write something.");
  const ids = tokenizer.encode(content);
  if (task === "translate") {
    const kept = ids.slice(0, generation.max_source_tokens - 1); // the end token is one
    const template = "The text has {n} tokens; the model read only the first {kept}.";
    const notices = leftOut(template, ids, kept);
    return { prefix: [generation.bos_id], source: [...kept, generation.eos_id], notices };
  }
  // A text that fits is kept whole, however little room it leaves; of one that does not fit, the end is kept.
  const room = config.max_length - 1; // 1 for <bos>
  const kept = ids.length <= room ? ids : ids.slice(-Math.max(1, room - reserved));
  const template = "The text has {n} tokens; the model read only the last {kept}.";
  return { prefix: [generation.bos_id, ...kept], source: null, notices: leftOut(template, ids, kept) };
}

function leftOut(template, ids, kept) {
  return kept.length === ids.length ? [] : [sentence(template, { n: ids.length, kept: kept.length })];
}

/**
 * The ids of a dialogue, ending with the token that opens the reply, and notices of what was left out. Whole turns are
 * dropped, the oldest first; a system message at the front stays. If the last message alone is too long, its start is
 * dropped. `reserved` tokens of the context are kept free for the reply.
 */
export function fitDialogue(tokenizer, messages, maxLength, reserved) {
  checkDialogue(messages);
  let room = maxLength - reserved - 1; // 1 for <assistant>
  if (room < 3) {
    const template = "A context of {size} tokens has no room for a message beside the reply; shorten it.";
    throw new ModelError(template, { size: maxLength });
  }
  const turns = messages.map((message) => tokenizer.encodeTurn(message));
  let system = messages[0].role === "system" ? turns.slice(0, 1) : [];
  let rest = turns.slice(system.length);
  const notices = [];
  if (system.length && system[0].length > Math.floor(room / 2)) {
    const template = "The system message has {n} tokens, too many to keep; it was left out.";
    notices.push(sentence(template, { n: system[0].length - 2 }));
    system = [];
  }
  room -= total(system);
  const nTurns = rest.length;
  while (rest.length > 1 && total(rest) > room) rest = rest.slice(1);
  const nDropped = nTurns - rest.length;
  if (nDropped === 1) {
    const template = "The oldest message was left out: the model's context holds {size} tokens.";
    notices.push(sentence(template, { size: maxLength }));
  } else if (nDropped) {
    const template = "The {n} oldest messages were left out: the model's context holds {size} tokens.";
    notices.push(sentence(template, { n: nDropped, size: maxLength }));
  }
  if (rest[0].length > room) {
    const [role, ...content] = rest[0];
    const end = content.pop();
    const template = "The message has {n} tokens; the model read only the last {kept}.";
    notices.push(sentence(template, { n: content.length, kept: room - 2 }));
    rest = [[role, ...content.slice(content.length - (room - 2)), end]];
  }
  return { ids: [...system.flat(), ...rest.flat(), tokenizer.roles.assistant], notices };
}

function total(turns) {
  return turns.reduce((n, turn) => n + turn.length, 0);
}

/** Refuse what is no dialogue, or leaves the model nothing to answer. */
function checkDialogue(messages) {
  if (!Array.isArray(messages) || !messages.length) {
    throw new ModelError('A dialogue is a list of {{"role": ..., "content": ...}}; give at least one message.');
  }
  for (const message of messages) {
    if (typeof message !== "object" || message === null || !("role" in message) || !("content" in message)) {
      throw new ModelError('A message must be {{"role": ..., "content": ...}}; correct the history.');
    }
    const { role, content } = message;
    if (!ROLES.includes(role)) {
      throw new ModelError("The role {role} is unknown; choose one of {roles}.", { role, roles: ROLES.join(", ") });
    }
    if (typeof content !== "string") {
      const template = "The content of a message must be text, not {kind}; correct the history.";
      throw new ModelError(template, { kind: typeof content });
    }
  }
  const { role, content } = messages.at(-1);
  if (role !== "user") {
    const template = "The last message is from the {role}; it must be the user's for the model to reply.";
    throw new ModelError(template, { role });
  }
  if (!content) throw new ModelError("The last message is empty; write something.");
}
