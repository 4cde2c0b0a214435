"""One push and pull on the real Hub, for those who have a network and a token that may write.

Not collected by itself: HF_TOKEN=... python -m pytest tests/support/live_hub.py
It makes a private repo in the token's own namespace and deletes it again.
"""

import secrets
from collections.abc import Callable

from tests.support.hub_driver import stand_in_report
from tiny_transformer.bundle import DECODER_ONNX, ENCODER_ONNX, Bundle
from tiny_transformer.hub import pull
from tiny_transformer.parity.report import stored_report, write_report


def test_push_and_pull_on_the_real_hub(make_bundle: Callable[..., Bundle]) -> None:
    from huggingface_hub import HfApi

    from export.push import PushOptions, push

    bundle = make_bundle()
    for name in (ENCODER_ONNX, DECODER_ONNX):
        (bundle.folder / name).write_bytes(name.encode())
    write_report(bundle, stand_in_report(bundle))
    api = HfApi()
    repo_id = f"{api.whoami()['name']}/tiny-transformer-test-{secrets.token_hex(4)}"
    try:
        for _ in range(2):  # the second has nothing to do
            push(PushOptions(folder=bundle.folder, repo_id=repo_id, private=True), stand_in_report)
        assert len(api.list_repo_commits(repo_id)) == 2
        pulled = Bundle.open(pull(repo_id, all_files=True))
        assert stored_report(pulled) == stored_report(bundle)
        assert pulled.hashes() == bundle.hashes()
    finally:
        api.delete_repo(repo_id, missing_ok=True)
