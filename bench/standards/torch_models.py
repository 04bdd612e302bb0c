"""``python -m bench torch_models``: architectures of the package transformers, small
and with random weights, under ``torch.compile(backend="eqsat")`` and without.

Results and gradients, each tensor by itself, are compared with those of the same model
in float64. They may be as far from it as four times what PyTorch's own float32 is, and
a few roundings. Calls
of the rivals take turns, in another order each round.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
import numpy as np

from bench.reports import Record, geometric_mean, machine, spread, write

FACTOR = 4
"""How many times as far from float64 as PyTorch's float32 a result may be."""
EPS = float(np.finfo(np.float32).eps)
ROUNDINGS = 8 * EPS
"""What it may be off besides, relative to its largest element."""

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
    has_gradients: bool = False
    """Whether its gradients are compared, too."""


ARCHITECTURES = {
    "bert": Architecture("encoder", "BertModel", SMALL, has_gradients=True),
    "roberta": Architecture("encoder", "RobertaModel", SMALL),
    "distilbert": Architecture(
        "encoder",
        "DistilBertModel",
        {"vocab_size": 99, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 96},
    ),
    "modernbert": Architecture("encoder", "ModernBertModel", SHARED),
    "gpt2": Architecture("decoder", "GPT2LMHeadModel", GPT, has_gradients=True),
    "llama": Architecture("decoder", "LlamaForCausalLM", SHARED, has_gradients=True),
    "mistral": Architecture("decoder", "MistralForCausalLM", SHARED),
    "qwen3": Architecture("decoder", "Qwen3ForCausalLM", SHARED),
    "gemma2": Architecture("decoder", "Gemma2ForCausalLM", SHARED),
    "phi": Architecture("decoder", "PhiForCausalLM", {**SMALL, "pad_token_id": 0}),
    "neox": Architecture("decoder", "GPTNeoXForCausalLM", SMALL),
    "t5": Architecture(
        "encoder and decoder", "T5Model", {**T5, "num_layers": 2}, "both"
    ),
    "vit": Architecture("vision", "ViTModel", {**SMALL, **IMAGE}, "image", True),
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
        has_gradients=True,
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
        has_gradients=True,
    ),
    "mamba2": Architecture(
        "state space",
        "Mamba2ForCausalLM",
        {
            "vocab_size": 99,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "state_size": 8,
            "num_heads": 8,
            "head_dim": 16,
            "n_groups": 2,
            "chunk_size": 8,
        },
    ),
    "opt": Architecture(
        "decoder",
        "OPTForCausalLM",
        {**SMALL, "ffn_dim": 96, "word_embed_proj_dim": 64, "pad_token_id": 0},
    ),
    "albert": Architecture("encoder", "AlbertModel", {**SMALL, "embedding_size": 32}),
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


def built(architecture: Architecture) -> tuple[Any, Callable[..., Any]]:
    """A model with random weights, and its call: a function of the model and its
    inputs to the outputs."""
    import torch
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, architecture.model)
    model = kind(kind.config_class(**architecture.config)).eval()
    is_cached = "use_cache" in model.config.to_dict()
    named = {"use_cache": False} if is_cached else {}

    def call(model: Any, **given: Any) -> Any:
        return model(**given, **named, return_dict=True)

    return model, call


def tensors_of(found: Any) -> list[Any]:
    """The tensors of an output."""
    import torch
    from torch.utils import _pytree as torch_pytree

    leaves = torch_pytree.tree_leaves(dict(found))
    return [x for x in leaves if isinstance(x, torch.Tensor)]


def gradients(model: Any, outputs: list[Any]) -> list[Any]:
    """Those of the mean square of all outputs, by each parameter that has one."""
    model.zero_grad()
    floats = [y for y in outputs if y.is_floating_point()]
    sum((y * y).mean() for y in floats).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def errors(found: list[Any], eager: list[Any], exact: list[Any]) -> Record:
    """How far the worst of the tensors is from float64's, and how far it may be.

    The last part of what is allowed is a rounding of the largest element of all:
    gradients by biases of keys are 0 but for what rounding leaves.
    """
    largest = max(float(z.abs().max()) for z in exact)
    worst: Record = {"error": 0.0, "bound": 0.0, "is_right": True}
    share = -1.0
    for x, y, z in zip(found, eager, exact, strict=True):
        off, known = (float((a.to(z.dtype) - z).abs().max()) for a in (x, y))
        most = FACTOR * known + ROUNDINGS * float(z.abs().max()) + EPS * largest
        now = off / most if off == off else float("inf")  # NaN is wrong
        if now > share:
            share = now
            worst = {"error": off, "bound": most, "is_right": now <= 1}
    return worst


def measured(
    architecture: Architecture, backends: tuple[str, ...], rounds: int, threads: int
) -> Record:
    """What a model gives and takes under each backend."""
    import torch
    from torch._dynamo.utils import counters

    import eqsat as eq
    import eqsat.pytorch

    options = {"eqsat": {"options": eq.Options(threads=threads)}}
    model, call = built(architecture)
    given = inputs(architecture.takes)
    wide = {n: x.double() if x.is_floating_point() else x for n, x in given.items()}
    record: Record = {"family": architecture.family, "model": architecture.model}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = tensors_of(call(model, **given))
        other = copy.deepcopy(model).double()
        if hasattr(other, "set_experts_implementation"):
            other.set_experts_implementation("eager")  # the others have no float64
        exact = tensors_of(call(other, **wide))
        calls = {"eager": lambda: call(model, **given)}
        torch._dynamo.reset()
        for name in backends:
            counters.clear()
            eqsat.pytorch.fallbacks(clear=True)
            run = torch.compile(call, backend=name, options=options.get(name))
            with torch.no_grad():
                start = time.perf_counter()
                found = tensors_of(run(model, **given))
                row: Record = {"first_s": time.perf_counter() - start}
            row |= errors(found, eager, exact)
            if architecture.has_gradients:
                wanted = gradients(other, exact), gradients(model, eager)
                exact, eager = (
                    tensors_of(call(other, **wide)),
                    tensors_of(call(model, **given)),
                )
                mine = gradients(model, tensors_of(run(model, **given)))
                row["gradients"] = errors(mine, wanted[1], wanted[0])
            row["graph_breaks"] = sum(counters["graph_break"].values())
            if name == "eqsat":
                left = eqsat.pytorch.fallbacks()
                row["fallbacks"] = {f"{f.op}: {f.reason}": f.times for f in left}
            record[name] = row
            calls[name] = lambda run=run: run(model, **given)  # type: ignore[misc]
        with torch.no_grad():
            timed = interleaved(calls, rounds)
    for name, seconds in timed.items():
        record.setdefault(name, {})["call"] = spread(seconds)
    return record


def interleaved(
    calls: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each call, of so many rounds, each in another order."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(-2, rounds):  # the first two warm up
        order = list(calls)
        Random(i).shuffle(order)
        for name in order:
            start = time.perf_counter()
            calls[name]()
            spent = time.perf_counter() - start
            if i >= 0:
                found[name].append(spent)
    return found


@click.command("torch_models")
@click.argument("names", nargs=-1, type=click.Choice(list(ARCHITECTURES)))
@click.option(
    "--inductor", is_flag=True, help="Inductor as well; it needs a C++ compiler."
)
@click.option("--rounds", default=40, help="Calls that are timed.")
@click.option("--threads", default=1, help="Of each of them.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def torch_models(
    names: tuple[str, ...],
    inductor: bool,
    rounds: int,
    threads: int,
    out: Path | None,
) -> None:
    """Run models of transformers, small and with random weights, under eqsat."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    backends = ("eqsat", "inductor") if inductor else ("eqsat",)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    about = {**machine(), **versions, "threads": threads, "rounds": rounds}
    found: Record = {}
    for name in names or tuple(ARCHITECTURES):
        found[name] = measured(ARCHITECTURES[name], backends, rounds, threads)
        click.echo(_line(name, found[name], backends))
        if (
            out is not None
        ):  # after each, so that a run that ends early keeps what it has
            write(out, {**about, "models": found})
    for peer in ("eager", *backends[1:]):
        ratios = [_median(r[peer]) / _median(r["eqsat"]) for r in found.values()]
        click.echo(
            f"eqsat is {geometric_mean(ratios):.2f} times as fast as {peer} "
            f"(geometric mean of {len(ratios)}, {min(ratios):.2f} to {max(ratios):.2f})"
        )
    wrong = [name for name, r in found.items() if not _is_right(r["eqsat"])]
    if wrong:
        raise click.ClickException(f"wrong results: {', '.join(wrong)}")


def _median(row: Record) -> float:
    seconds: float = row["call"]["median_s"]
    return seconds


def _is_right(row: Record) -> bool:
    return bool(row["is_right"] and row.get("gradients", row)["is_right"])


def _line(name: str, record: Record, backends: tuple[str, ...]) -> str:
    eager = _median(record["eager"])
    parts = [f"{name} ({record['family']}): eager {eager * 1e3:.2f} ms"]
    for backend in backends:
        row = record[backend]
        mark = "" if _is_right(row) else " WRONG"
        parts.append(
            f"{backend} {_median(row) * 1e3:.2f} ms, first {row['first_s']:.1f} s, "
            f"error {row['error']:.1e} of {row['bound']:.1e}{mark}, "
            f"{row['graph_breaks']} graph breaks"
        )
        if "gradients" in row:
            g = row["gradients"]
            parts.append(f"  gradients: error {g['error']:.1e} of {g['bound']:.1e}")
    left = record["eqsat"]["fallbacks"]
    parts += [f"  stays in PyTorch: {n} × {what}" for what, n in left.items()]
    return "\n  ".join(parts)
