"""A call that fails is repeated while that can help, waits as it is told, and ends in one sentence."""

import httpx2
import pytest
from huggingface_hub.errors import HfHubHTTPError

from tiny_transformer import hub
from tiny_transformer.errors import HubError

ADDRESS = "https://hub/api"


def answered(status: int, **headers: str) -> HfHubHTTPError:
    request = httpx2.Request("GET", ADDRESS)
    return HfHubHTTPError("no", response=httpx2.Response(status, headers=headers, request=request))


class Busy:
    """Fails some times, then answers; knows how often it was asked."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left, self.asked, self.error = times, 0, error

    def __call__(self) -> str:
        self.asked += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "done"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each pause was, without pausing."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


def test_pauses_double_up_to_the_longest(waits: list[float]) -> None:
    assert hub.call(Busy(7, answered(503)), about="x") == "done"
    assert waits == [0.5, 1, 2, 4, 8, 16, 16]


def test_the_hub_says_how_long_to_wait(waits: list[float]) -> None:
    assert hub.call(Busy(2, answered(429, **{"Retry-After": "7"})), about="x") == "done"
    assert waits == [7, 7]


@pytest.mark.parametrize("error", [answered(503), answered(429, **{"Retry-After": "50"})])
def test_all_pauses_together_stay_within_the_patience(waits: list[float], error: Exception) -> None:
    with pytest.raises(HubError, match=r"\((503|429)\)"):
        hub.call(Busy(99, error), about="x")
    assert 0 < sum(waits) <= hub.PATIENCE < sum(waits) + waits[-1]


@pytest.mark.parametrize(("seconds", "tries"), [(50.0, 3), (130.0, 1)])
def test_tries_that_take_long_end_the_patience_too(
    waits: list[float], monkeypatch: pytest.MonkeyPatch, seconds: float, tries: int
) -> None:
    clock = [0.0]
    busy = Busy(99, httpx2.WriteError("cut"))

    def slow() -> str:
        clock[0] += seconds
        return busy()

    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    with pytest.raises(HubError, match="cannot be reached"):
        hub.call(slow, about="x")
    assert busy.asked == tries
    assert clock[0] + sum(waits) < hub.PATIENCE + 2 * seconds


@pytest.mark.parametrize("error", [answered(400), answered(401), answered(403), answered(404), answered(412)])
def test_what_will_not_change_is_asked_once(waits: list[float], error: Exception) -> None:
    busy = Busy(1, error)
    with pytest.raises(HubError):
        hub.call(busy, about="x")
    assert (busy.asked, waits) == (1, [])


def test_what_is_not_safe_to_do_twice_is_done_once(waits: list[float]) -> None:
    busy = Busy(1, answered(503))
    with pytest.raises(HubError) as failed:
        hub.call(busy, about="x", repeat=False)
    assert failed.value.transient  # whoever asked must find out what happened
    assert (busy.asked, waits) == (1, [])


@pytest.mark.parametrize(
    "error", [httpx2.ConnectError("refused"), httpx2.ReadTimeout("slow"), httpx2.RemoteProtocolError("reset")]
)
def test_a_network_that_fails_is_tried_again(waits: list[float], error: Exception) -> None:
    assert hub.call(Busy(1, error), about="x") == "done"


@pytest.mark.parametrize("error", [KeyError("ours"), PermissionError(13, "disk")])
def test_what_is_not_the_hubs_doing_is_left_alone(waits: list[float], error: Exception) -> None:
    with pytest.raises(type(error)):
        hub.call(Busy(1, error), about="x")
    assert waits == []
