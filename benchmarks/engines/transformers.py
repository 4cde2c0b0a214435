"""Hugging Face transformers: our weights in M2M100 (pre-norm, sinusoidal positions) and in GPT-2."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tiny_transformer.bundle import Bundle
from tiny_transformer.config import ModelConfig

RUNTIME = "torch"
POSITIONS = "positions.npy"  # M2M100 computes its table anew at every load, in another order than ours


def convert(bundle: Bundle, folder: Path) -> None:
    """A folder that `from_pretrained` opens."""
    import torch

    weights = {name: torch.from_numpy(tensor.astype(np.float32)) for name, tensor in bundle.weights().items()}
    model = _m2m100(bundle) if bundle.config.is_encoder_decoder else _gpt2(bundle)
    named = _m2m100_names(weights) if bundle.config.is_encoder_decoder else _gpt2_names(weights)
    missing, unexpected = model.load_state_dict(named, strict=False)
    computed = ("lm_head.weight", "embed_positions.weights", "embed_tokens.weight", ".attn.bias", ".masked_bias")
    assert not unexpected, unexpected
    assert all(name.endswith(computed) for name in missing), missing
    model.tie_weights()
    model.save_pretrained(folder)
    if bundle.config.is_encoder_decoder:
        from tiny_transformer.model.positions import sinusoidal_table

        np.save(folder / POSITIONS, sinusoidal_table(bundle.config.max_length, bundle.config.d_model).numpy())


def open_model(folder: Path, precision: str, threads: int, device: str) -> "Generate":
    """The model in evaluation mode, with PyTorch's fused attention."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    torch.set_num_threads(threads)
    translates = (folder / POSITIONS).is_file()
    kind = AutoModelForSeq2SeqLM if translates else AutoModelForCausalLM
    model = kind.from_pretrained(folder, attn_implementation="sdpa", dtype=getattr(torch, precision)).to(device).eval()
    if translates:
        table = torch.from_numpy(np.load(folder / POSITIONS)).to(device)
        for stack in (model.model.encoder, model.model.decoder):
            # Row 0 stands for padding; real positions count from 1.
            stack.embed_positions.weights = torch.cat((torch.zeros(1, table.size(1), device=device), table))
    return Generate(model, device, encodes=translates)


class Generate:
    """`generate`, as its users call it."""

    def __init__(self, model: Any, device: str, *, encodes: bool) -> None:
        self.model, self.device, self.encodes = model, device, encodes

    def generate(self, rows: Sequence[Sequence[int]], n_new: int) -> list[list[int]]:
        """Greedy, a forced number of tokens."""
        import torch

        ids = torch.tensor(rows, device=self.device)
        with torch.inference_mode():
            found = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                num_beams=1,
                min_new_tokens=n_new,
                max_new_tokens=n_new,
            )
        given = 1 if self.encodes else ids.size(1)
        new: list[list[int]] = found[:, given:].tolist()
        return new


def _m2m100(bundle: Bundle) -> Any:
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    config = bundle.config
    settings = M2M100Config(
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        encoder_layers=config.n_encoder_layers,
        decoder_layers=config.n_decoder_layers,
        encoder_attention_heads=config.n_heads,
        decoder_attention_heads=config.n_heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        max_position_embeddings=config.max_length,
        activation_function=_activation(config),
        scale_embedding=config.scale_embeddings,
        decoder_start_token_id=bundle.generation.bos_id,
        **_special(bundle),
    )
    return M2M100ForConditionalGeneration(settings)


def _gpt2(bundle: Bundle) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = bundle.config
    settings = GPT2Config(
        vocab_size=config.vocab_size,
        n_embd=config.d_model,
        n_layer=config.n_decoder_layers,
        n_head=config.n_heads,
        n_inner=config.d_ff,
        n_positions=config.max_length,
        activation_function=_activation(config),
        **_special(bundle),
    )
    return GPT2LMHeadModel(settings)


def _special(bundle: Bundle) -> dict[str, int]:
    special = bundle.generation
    return {"pad_token_id": special.pad_id, "bos_token_id": special.bos_id, "eos_token_id": special.eos_id}


def _activation(config: ModelConfig) -> str:
    return "gelu_new" if config.activation == "gelu" else "relu"


def _m2m100_names(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Our parameters under M2M100's names; the fused projections cut into theirs."""
    found = {"model.shared.weight": weights["embedding.tokens.weight"]}
    parts = {
        "self_attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attention.output": ("self_attn.out_proj",),
        "around_attention.norm": ("self_attn_layer_norm",),
        "cross_attention.query": ("encoder_attn.q_proj",),
        "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
        "cross_attention.output": ("encoder_attn.out_proj",),
        "around_cross.norm": ("encoder_attn_layer_norm",),
        "feed_forward.inner": ("fc1",),
        "feed_forward.output": ("fc2",),
        "around_feed_forward.norm": ("final_layer_norm",),
    }
    for name, tensor in weights.items():
        stack, _, rest = name.partition(".")
        if rest.startswith("norm."):
            found[f"model.{stack}.layer_norm.{rest.removeprefix('norm.')}"] = tensor
        elif rest.startswith("layers."):
            _, i, inner = rest.split(".", 2)
            ours, _, kind = inner.rpartition(".")
            for theirs, piece in zip(parts[ours], tensor.chunk(len(parts[ours])), strict=True):
                found[f"model.{stack}.layers.{i}.{theirs}.{kind}"] = piece
    return found


def _gpt2_names(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Our parameters under GPT-2's names; its matrices stand the other way round."""
    parts = {
        "self_attention.qkv": "attn.c_attn",
        "self_attention.output": "attn.c_proj",
        "around_attention.norm": "ln_1",
        "feed_forward.inner": "mlp.c_fc",
        "feed_forward.output": "mlp.c_proj",
        "around_feed_forward.norm": "ln_2",
    }
    found = {
        "transformer.wte.weight": weights["embedding.tokens.weight"],
        "transformer.wpe.weight": weights["embedding.positions"],
        "transformer.ln_f.weight": weights["decoder.norm.weight"],
        "transformer.ln_f.bias": weights["decoder.norm.bias"],
    }
    for name, tensor in weights.items():
        if name.startswith("decoder.layers."):
            _, _, i, inner = name.split(".", 3)
            ours, _, kind = inner.rpartition(".")
            found[f"transformer.h.{i}.{parts[ours]}.{kind}"] = tensor.T.contiguous() if tensor.ndim == 2 else tensor
    return found
