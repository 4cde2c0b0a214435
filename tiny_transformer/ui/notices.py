"""What the library says, in the page's language: its sentences are English, so Chinese is matched to them."""

import re

from tiny_transformer.errors import TinyTransformerError
from tiny_transformer.ui.languages import Language
from tiny_transformer.ui.strings import say
from tiny_transformer.ui.wishes import Refused

_CHINESE = (
    (
        r"The oldest message was left out: the model's context holds (\d+) tokens\.",
        r"最早的 1 条消息未被读取：模型的上下文为 \1 个词元。",
    ),
    (
        r"The (\d+) oldest messages were left out: the model's context holds (\d+) tokens\.",
        r"最早的 \1 条消息未被读取：模型的上下文为 \2 个词元。",
    ),
    (
        r"The (?:message|text) has (\d+) tokens; the model read only the last (\d+)\.",
        r"文本有 \1 个词元，模型只读了最后 \2 个。",
    ),
    (r"The text has (\d+) tokens; the model read only the first (\d+)\.", r"文本有 \1 个词元，模型只读了前 \2 个。"),
    (
        r"the folder has no (.+), make it with: (.+)",
        r"文件夹中没有 \1，用此命令生成：\2",
    ),
    (r"the package (\S+) is missing, get it with: (.+)", r"缺少 \1 包，用此命令安装：\2"),
    (
        r"the device (\S+) needs an NVIDIA GPU and its driver, and none was found; use cpu",
        r"设备 \1 需要 NVIDIA GPU 及其驱动，但没有找到；请用 cpu",
    ),
    (r"(.+) is not a folder; name a model folder such as (.+)\.", r"\1 不是文件夹；请给出一个模型文件夹，例如 \2。"),
    (r"(.+) lacks (.+); restore the files or train the model again\.", r"\1 缺少 \2；请恢复文件或重新训练模型。"),
)
_PATTERNS = [(re.compile(pattern, re.DOTALL), chinese) for pattern, chinese in _CHINESE]


def translated(sentence: str, language: Language) -> str:
    """A sentence of the library in the page's language; one that is not known stays as it is."""
    if language == "zh":
        for pattern, chinese in _PATTERNS:
            found = pattern.fullmatch(sentence)
            if found:
                return found.expand(chinese)
    return sentence


def explained(error: Exception, language: Language) -> str:
    """The sentence for a refusal or an error of ours."""
    if isinstance(error, Refused):
        return say(language, error.key, **error.values)
    if isinstance(error, TinyTransformerError):
        return translated(str(error), language)
    return say(language, "failed")
