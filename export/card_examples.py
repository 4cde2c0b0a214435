"""The card's examples: made-up prompts, and what the model really says to them."""

from dataclasses import dataclass

from tiny_transformer.bundle import DECODER_ONNX, ENCODER_ONNX, TRAINING, Bundle
from tiny_transformer.text_model import load
from tiny_transformer.tokenizer import Message

# None of them was taken from the data; short and everyday, as what the models learned from.
SENTENCES = {
    "de": (
        "Guten Morgen!",
        "Wie komme ich zum Bahnhof?",
        "Meine Schwester backt jeden Sonntag einen Apfelkuchen.",
        "Kannst du mir bitte den blauen Stift geben?",
        "Der Zug nach Hamburg hat heute eine Stunde Verspätung.",
        "Ich habe meinen Regenschirm im Büro vergessen.",
    ),
    "zh": (
        "今天天气真好。",
        "我喜欢你。",
        "这家饭馆的面条很好吃。",
        "請問洗手間在哪裡？",
        "他每天骑自行车去上班。",
        "我想买一张去上海的火车票。",
    ),
}
# What the user says, turn by turn; the model's own answers stand in between.
DIALOGUES = {
    "en": (
        ("Hello there, lovely to see you!", "And what do they call you?", "So I am talking to a robot?"),
        ("Did you have a good time today?", "Mine was long. I'm really worn out."),
        ("Cheer me up with a joke!", "Haha! Got one more?"),
        ("We adopted a puppy this morning!", "What name should we give him?"),
        ("Do you enjoy listening to music?", "Which film did you see last?"),
        ("Should I be afraid of robots?",),
        ("Thank you for the chat, see you tomorrow!",),
        ("Tell me a story about a mouse and a lion.",),
        ("Can you tell me a story about a lost kite?",),
    ),
}


@dataclass(frozen=True)
class Turn:
    """What was said, and what the model answered."""

    said: str
    answer: str


def has_examples(bundle: Bundle) -> bool:
    """Whether there is a trained model with graphs to ask, in a language there are prompts for."""
    graphs = (ENCODER_ONNX, DECODER_ONNX) if bundle.config.is_encoder_decoder else (DECODER_ONNX,)
    return bundle.has(TRAINING, *graphs) and bool(_prompts(bundle))


def examples(bundle: Bundle) -> list[list[Turn]]:
    """Every dialogue (a translation is one of a single turn), answered greedily by ONNX Runtime."""
    model = load(bundle.folder, "onnx")
    if bundle.generation.task == "translate":
        texts = [said for (said,) in _prompts(bundle)]
        return [[Turn(said, found.text)] for said, found in zip(texts, model.generate_batch(texts), strict=True)]
    dialogues = []
    for sayings in _prompts(bundle):
        history: list[Message] = []
        for said in sayings:
            history.append(Message(role="user", content=said))
            history.append(Message(role="assistant", content=model.reply(history).text))
        answers = [message["content"] for message in history[1::2]]
        dialogues.append([Turn(said, answer) for said, answer in zip(sayings, answers, strict=True)])
    return dialogues


def as_dialogue(turns: list[Turn]) -> str:
    """One dialogue, line by line."""
    return "\n".join(f"you:   {turn.said}\nmodel: {turn.answer}" for turn in turns)


def _prompts(bundle: Bundle) -> list[tuple[str, ...]]:
    generation = bundle.generation
    if generation.task == "translate":
        return [(text,) for language in generation.source_languages for text in SENTENCES.get(language, ())]
    return list(DIALOGUES.get(generation.target_language, ())) if generation.task == "chat" else []
