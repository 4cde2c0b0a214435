"""What the browser gets: a theme over Gradio's, light and dark, our style sheet, and the script at the start."""

from pathlib import Path

import gradio as gr

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


# When the page opens. A group of choices gets its name for those who hear the page. Copying an answer takes its
# text: not the line under it, and not the invisible characters that keep "<" plain.
START = """() => {
  document.documentElement.lang = navigator.language.startsWith("zh") ? "zh" : "en";
  const clean = (text) => text.replace(/\\s*<span class="tt-line">[^]*$/, "").replaceAll("\\u2060", "");
  if (navigator.clipboard) {
    const write = navigator.clipboard.writeText.bind(navigator.clipboard);
    navigator.clipboard.writeText = (text) => write(clean(text));
  }
  document.addEventListener("focusin", (event) => {
    const group = event.target.closest("fieldset");
    const name = group && group.querySelector('[data-testid="block-info"]');
    if (name) group.setAttribute("aria-label", name.textContent.trim());
  });
  document.addEventListener("copy", (event) => {
    const field = document.activeElement;
    const inField = field && field.tagName === "TEXTAREA";
    const text = inField ? field.value.slice(field.selectionStart, field.selectionEnd) : String(getSelection());
    if (clean(text) === text) return;
    event.clipboardData.setData("text/plain", clean(text));
    event.preventDefault();
  });
}"""
