"""``python -m bench torch_models``: architectures of the package transformers, small
and with random weights, under ``torch.compile(backend="eqsat")`` and without."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.reports import Record, machine, write

SMALL = {
    "vocab_size": 99,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
}
SHARED = {**SMALL, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0}
GPT = {"vocab_size": 99, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
IMAGE = {"image_size": 32, "patch_size": 8}
T5 = {"vocab_size": 99, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_heads": 4}


@dataclass(frozen=True)
class Architecture:
    """A model of transformers: its class, its configuration and what it takes."""

    family: str
    model: str
    config: Mapping[str, Any]
    takes: str = "tokens"


ARCHITECTURES = {
    "bert": Architecture("encoder", "BertModel", SMALL),
    "roberta": Architecture("encoder", "RobertaModel", SMALL),
    "distilbert": Architecture(
        "encoder",
        "DistilBertModel",
        {"vocab_size": 99, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 96},
    ),
    "modernbert": Architecture("encoder", "ModernBertModel", SHARED),
    "gpt2": Architecture("decoder", "GPT2LMHeadModel", GPT),
    "llama": Architecture("decoder", "LlamaForCausalLM", SHARED),
    "mistral": Architecture("decoder", "MistralForCausalLM", SHARED),
    "qwen3": Architecture("decoder", "Qwen3ForCausalLM", SHARED),
    "gemma2": Architecture("decoder", "Gemma2ForCausalLM", SHARED),
    "phi": Architecture("decoder", "PhiForCausalLM", {**SMALL, "pad_token_id": 0}),
    "neox": Architecture("decoder", "GPTNeoXForCausalLM", SMALL),
    "t5": Architecture(
        "encoder and decoder", "T5Model", {**T5, "num_layers": 2}, "both"
    ),
    "vit": Architecture("vision", "ViTModel", {**SMALL, **IMAGE}, "image"),
    "convnext": Architecture(
        "vision",
        "ConvNextModel",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
        "image",
    ),
    "resnet": Architecture(
        "vision",
        "ResNetModel",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
        },
        "image",
    ),
    "whisper": Architecture(
        "speech",
        "WhisperModel",
        {
            "vocab_size": 99,
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "num_mel_bins": 16,
            "max_source_positions": 40,
            "max_target_positions": 40,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        "sound",
    ),
    "wav2vec2": Architecture(
        "speech",
        "Wav2Vec2Model",
        {
            **SMALL,
            "conv_dim": (32, 32, 32),
            "conv_stride": (5, 2, 2),
            "conv_kernel": (10, 3, 3),
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
        },
        "wave",
    ),
    "mixtral": Architecture(
        "mixture of experts",
        "MixtralForCausalLM",
        {**SHARED, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "mamba": Architecture(
        "state space",
        "MambaForCausalLM",
        {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8},
    ),
}


def inputs(kind: str) -> dict[str, Any]:
    """What a model is called with."""
    import torch

    tokens = torch.randint(3, 99, (2, 24))
    found: dict[str, dict[str, Any]] = {
        "tokens": {"input_ids": tokens},
        "both": {"input_ids": tokens, "decoder_input_ids": tokens[:, :12]},
        "image": {"pixel_values": torch.randn(2, 3, 32, 32)},
        "sound": {
            "input_features": torch.randn(2, 16, 80),
            "decoder_input_ids": tokens[:, :12],
        },
        "wave": {"input_values": torch.randn(2, 800)},
    }
    return found[kind]


def built(architecture: Architecture) -> Callable[..., Any]:
    """A model with random weights, as a function of its inputs to tensors."""
    import torch
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, architecture.model)
    model = kind(kind.config_class(**architecture.config)).eval()
    is_cached = "use_cache" in model.config.to_dict()
    named = {"use_cache": False} if is_cached else {}

    def call(**given: Any) -> Any:
        return model(**given, **named, return_dict=True)

    return call


def tensors_of(found: Any) -> list[Any]:
    """The tensors of an output."""
    import torch
    from torch.utils import _pytree as torch_pytree

    leaves = torch_pytree.tree_leaves(dict(found))
    return [x for x in leaves if isinstance(x, torch.Tensor)]


def difference(found: list[Any], wanted: list[Any]) -> float:
    """The largest difference of two lists of tensors, over the largest element."""
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        scale = max(float(b.abs().max()), 1e-30)
        worst = max(worst, float((a - b).abs().max()) / scale)
    return worst


def median_s(call: Callable[[], Any], rounds: int) -> float:
    """The median time of a call, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measured(
    architecture: Architecture, backends: tuple[str, ...], rounds: int
) -> Record:
    """What a model gives and takes under each backend."""
    import torch
    from torch._dynamo.utils import counters

    import eqsat.pytorch

    model = built(architecture)
    given = inputs(architecture.takes)
    record: Record = {"family": architecture.family, "model": architecture.model}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = tensors_of(model(**given))
        record["eager_s"] = median_s(lambda: model(**given), rounds)
        for name in backends:
            torch._dynamo.reset()
            counters.clear()
            eqsat.pytorch.fallbacks(clear=True)
            compiled = torch.compile(model, backend=name)
            start = time.perf_counter()
            found = tensors_of(compiled(**given))
            row: Record = {"first_s": time.perf_counter() - start}
            row["difference"] = difference(found, wanted)
            row["call_s"] = median_s(lambda call=compiled: call(**given), rounds)  # type: ignore[misc]
            row["graph_breaks"] = sum(counters["graph_break"].values())
            if name == "eqsat":
                left = eqsat.pytorch.fallbacks()
                row["fallbacks"] = {f"{f.op}: {f.reason}": f.times for f in left}
            record[name] = row
    return record


@click.command("torch_models")
@click.argument("names", nargs=-1, type=click.Choice(list(ARCHITECTURES)))
@click.option(
    "--inductor", is_flag=True, help="Inductor as well; it needs a C++ compiler."
)
@click.option("--rounds", default=20, help="Calls that are timed.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def torch_models(
    names: tuple[str, ...], inductor: bool, rounds: int, out: Path | None
) -> None:
    """Run models of transformers, small and with random weights, under eqsat."""
    backends = ("eqsat", "inductor") if inductor else ("eqsat",)
    found: Record = {}
    for name in names or tuple(ARCHITECTURES):
        found[name] = measured(ARCHITECTURES[name], backends, rounds)
        click.echo(_line(name, found[name], backends))
    if out is not None:
        import torch
        import transformers

        versions = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
        write(out, {**machine(), **versions, "rounds": rounds, "models": found})


def _line(name: str, record: Record, backends: tuple[str, ...]) -> str:
    parts = [f"{name} ({record['family']}): eager {record['eager_s'] * 1e3:.2f} ms"]
    for backend in backends:
        row = record[backend]
        parts.append(
            f"{backend} {row['call_s'] * 1e3:.2f} ms, first {row['first_s']:.1f} s, "
            f"difference {row['difference']:.1e}, {row['graph_breaks']} graph breaks"
        )
    left = record["eqsat"]["fallbacks"]
    parts += [f"  stays in PyTorch: {n} × {what}" for what, n in left.items()]
    return "\n  ".join(parts)
