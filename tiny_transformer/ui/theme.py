"""What the browser gets: a theme over Gradio's, light and dark, our style sheet, and the script at the start."""

import json
from pathlib import Path

import gradio as gr
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tiny_transformer.ui.i18n import Language, dictionary

_FONTS = [
    "system-ui",
    "-apple-system",
    "Segoe UI",
    "Roboto",
    "Noto Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "sans-serif",
]
_MONO = ["ui-monospace", "SF Mono", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace"]

# The blue of the figures in docs/, from light to dark.
_BLUE = gr.themes.Color(
    "#eef4fb", "#d9e6f5", "#b5cdea", "#86abd9", "#5586c4", "#2f66b0", "#27579a", "#21487f", "#1d3d6a", "#193357",
    "#10213a", name="tiny-blue",
)  # fmt: skip
_PAPER = gr.themes.Color(
    "#fcfbf8", "#f5f4f0", "#e8e6e0", "#d3d0c8", "#a3a19a", "#72716c", "#565550", "#3f3e3b", "#292927", "#1b1b1a",
    "#121211", name="tiny-paper",
)  # fmt: skip


def theme() -> gr.themes.Base:
    """Warm paper, dark ink, one blue."""
    return gr.themes.Base(
        primary_hue=_BLUE,
        secondary_hue=_BLUE,
        neutral_hue=_PAPER,
        radius_size=gr.themes.sizes.radius_md,
        font=_FONTS,
        font_mono=_MONO,
    ).set(
        body_background_fill="*neutral_50",
        body_background_fill_dark="*neutral_950",
        body_text_color="#1f2733",
        body_text_color_dark="#ecebe6",
        body_text_color_subdued="#5a6472",
        body_text_color_subdued_dark="#a9a7a0",
        background_fill_primary="#ffffff",
        background_fill_primary_dark="*neutral_900",
        background_fill_secondary="*neutral_100",
        background_fill_secondary_dark="*neutral_800",
        block_background_fill="#ffffff",
        block_background_fill_dark="*neutral_900",
        block_border_color="*neutral_200",
        block_border_color_dark="*neutral_800",
        block_label_text_color="#46505e",
        block_label_text_color_dark="#b9b7b0",
        block_title_text_color="#46505e",
        block_title_text_color_dark="#b9b7b0",
        block_info_text_color="#5a6472",
        block_info_text_color_dark="#a9a7a0",
        block_shadow="none",
        input_background_fill="#ffffff",
        input_background_fill_dark="*neutral_900",
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_700",
        input_placeholder_color="#6b7480",
        input_placeholder_color_dark="#93918a",
        button_primary_background_fill="*primary_500",
        button_primary_background_fill_hover="*primary_600",
        button_primary_background_fill_dark="*primary_500",
        button_primary_background_fill_hover_dark="*primary_600",
        button_primary_text_color="#ffffff",
        link_text_color="*primary_600",
        link_text_color_dark="*primary_300",
        color_accent_soft="*primary_50",
        color_accent_soft_dark="*primary_950",
        slider_color="*primary_500",
    )


def stylesheet() -> str:
    """Our own rules, kept as a file beside this one."""
    return (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


def _script() -> str:
    """What the browser does by itself, kept as files beside this one, with the sentences that it says."""
    said = {language: {key: dictionary(language)[key] for key in _WAITING} for language in _LANGUAGES}
    page, laboratory = (
        (Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("page.js", "laboratory.js")
    )
    return f"() => {{ ({page.replace('SENTENCES', json.dumps(said))})(); ({laboratory})(); }}"


_LANGUAGES: tuple[Language, ...] = ("en", "zh")
_WAITING = ("wait_before", "wait_next", "wait_working")
START = _script()

# Before anything of Gradio's runs: the whole page, its footer and what the server says are in one language. It is the
# one that was chosen, else the first of the browser's that the page speaks.
HEAD = """<script>
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("tiny-transformer.page/language"); } catch (error) { }
  const spoken = ["en", "zh"];
  const wanted = [chosen, ...navigator.languages.map((tag) => tag.slice(0, 2))];
  const language = wanted.find((tag) => spoken.includes(tag)) || "en";
  const tag = language === "zh" ? "zh-CN" : "en";
  document.documentElement.lang = language;
  Object.defineProperty(navigator, "language", { get: () => tag });
  Object.defineProperty(navigator, "languages", { get: () => [tag] });
  const ask = window.fetch;
  window.fetch = (address, options = {}) => {
    const headers = new Headers(options.headers || (address instanceof Request ? address.headers : undefined));
    headers.set("Accept-Language", tag);
    return ask(address, { ...options, headers });
  };
})();
</script>"""


class EarlyScript:
    """Puts `HEAD` into the page itself: what Gradio calls its head comes only after it has chosen a language."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTML is held back until it is whole."""
        start: Message | None = None
        chunks: list[bytes] = []

        async def with_script(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                if headers.get("content-type", "").startswith("text/html") and "content-encoding" not in headers:
                    start = message
                    return
            elif start is not None and message["type"] == "http.response.body":
                chunks.append(message.get("body", b""))
                if message.get("more_body"):
                    return
                body = b"".join(chunks).replace(b"<head>", b"<head>" + HEAD.encode(), 1)
                if "content-length" in MutableHeaders(raw=start["headers"]) and body:  # a HEAD request has no body
                    MutableHeaders(scope=start)["content-length"] = str(len(body))
                await send(start)
                message = {"type": "http.response.body", "body": body}
            await send(message)

        await self._app(scope, receive, with_script)
