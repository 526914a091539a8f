"""Links with codes, and the cookies that they become."""

from __future__ import annotations

from services.gateway.adapters.browsers import CODE_VALID_S, COOKIE_VALID_S, Browsers

KEY = b"a key of the cell, long enough for it"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_code_is_good_once():
    browsers = Browsers(KEY, 8420, Clock())
    code = browsers.code_for("abc")
    cookie = browsers.enter(code)
    assert cookie is not None and browsers.token_id(cookie) == "abc"
    assert browsers.enter(code) is None and browsers.enter("guessed") is None


def test_codes_and_cookies_age():
    clock = Clock()
    browsers = Browsers(KEY, 8420, clock)
    code, cookie = browsers.code_for("abc"), browsers.enter(browsers.code_for("abc"))
    clock.now_s += CODE_VALID_S
    assert browsers.enter(code) is None
    assert cookie is not None and browsers.token_id(cookie) == "abc"
    clock.now_s += COOKIE_VALID_S
    assert browsers.token_id(cookie) is None


def test_cookies_outlive_the_process_and_cannot_be_made_up():
    clock = Clock()
    first = Browsers(KEY, 8420, clock)
    cookie = first.enter(first.code_for("abc"))
    assert cookie is not None
    assert Browsers(KEY, 8420, clock).token_id(cookie) == "abc"
    assert Browsers(b"another key" * 4, 8420, clock).token_id(cookie) is None
    for wrong in ("", ".", "..", "é", f"x{cookie}", cookie[:-1], cookie.replace("abc", "abd"), "abc.99999999999."):
        assert first.token_id(wrong) is None, wrong
