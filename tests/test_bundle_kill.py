"""A process that saves without end is killed at random moments: the folder always opens, whole, old or new."""

import json
from pathlib import Path

import pytest

from tests.support.models import run_python

# A small process of its own forks the victims: forking this one, with torch's threads, would be asking for trouble.
KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
from tiny_transformer.bundle import EMBEDDING, Bundle, save_bundle
from tiny_transformer.config import GenerationConfig, ModelConfig
from tiny_transformer.tokenizer import Tokenizer

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
tokenizer = Tokenizer.synthetic(300)

def save(version):
    config = ModelConfig.gpt(
        vocab_size=300, d_model=256, n_decoder_layers=1, d_ff=8, max_length=version, positions="none"
    )
    generation = GenerationConfig(task="complete", max_source_tokens=version)
    weights = {EMBEDDING: np.full((300, 256), version, np.float32)}
    weights["rest"] = np.full(config.n_parameters - 300 * 256, version, np.float32)
    save_bundle(folder, config, generation, tokenizer, weights, extra={"training.json": str(version)}, overwrite=True)

def version():
    bundle = Bundle.open(folder)
    found = {bundle.config.max_length, bundle.generation.max_source_tokens}
    found |= {int((bundle.folder / "training.json").read_text())}
    found |= {float(n) for array in bundle.weights().values() for n in np.unique(array)}
    assert len(found) == 1, f"the folder mixes versions {found}"
    assert bundle.files() == ["config.json", "generation.json", "model.safetensors", "tokenizer.json", "training.json"]
    return int(found.pop())

save(1)
start = time.perf_counter(); save(2); one_save = time.perf_counter() - start
chance, seen = random.Random(0), [2]
for _ in range(kills):
    child = os.fork()
    if child == 0:
        for i in range(seen[-1] + 1, 10**6):
            save(i)
    time.sleep(chance.uniform(0, 2.5 * one_save))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    seen.append(version())
left = [path.name for path in folder.parent.iterdir() if path != folder]
save(10**6)
print(json.dumps({"seen": seen, "left": left, "last": version()}))
"""


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_the_old_model_or_the_new(tmp_path: Path) -> None:
    done = run_python(KILLER, tmp_path / "model", "25")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["seen"] == sorted(result["seen"]), "an older model came back"
    assert result["seen"][-1] > 2, "no save ever finished"
    assert result["left"], "every kill came between two saves: the test proves nothing"
    assert all(name.startswith(".model.") and ".tmp" in name for name in result["left"])
    assert result["last"] == 10**6, "what the kills left behind stopped the next save"
