"""A person at a terminal: menus, tables and charts that fit, interruptions that lose nothing."""

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from rich.console import Console

import arena_jax
from arena_jax.llm import ArenaSession
from arena_jax.llm.charts import cash_chart, sparkline
from arena_jax.llm.documents import DOCUMENTS
from arena_jax.llm.play import Player, standing
from arena_jax.llm.runs import journal_path

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def play_lines(monkeypatch, session, lines, width=80, verified=None):
    """What a player sees who types `lines`, and whether the episode is over; one who types no more hangs up."""
    typed, out, over = iter(lines), io.StringIO(), None

    def answer(prompt=""):
        line = next(typed, None)
        if line is None:
            raise EOFError
        out.write("\n")  # the terminal's echo
        return line

    monkeypatch.setattr("builtins.input", answer)
    with contextlib.suppress(EOFError):
        over = Player(session, Console(file=out, width=width, highlight=False), verified or []).play()
    return out.getvalue(), over


@pytest.mark.parametrize("width", [80, 120])
def test_every_menu_and_answer_fits_the_window(env, monkeypatch, width):
    session = ArenaSession(env, 1)
    lines = ["6", "", "20M", "7", "5", "1", "c", "3", "", "", "3", "1 volatility", "6"]
    for number, name in enumerate(DOCUMENTS, start=1):
        lines += ["2", str(number)] + [""] * (
            name.endswith("statement") or name in ("balance_sheet", "operating_report")
        )
    lines += ["4", *[""] * 4, "18", "88k", "390", "5M", "3", "24"]
    lines += ["8", "a note \x1b[2J[bold]", "9", "h", "zz", "", "7", "q"]
    shown, over = play_lines(monkeypatch, session, lines, width)
    assert over is False
    assert max(map(len, shown.split("\n"))) <= width
    for text in (
        "20 tool calls left",
        "Total liabilities and equity",
        "Net cash from operations",
        "a note �[2J[bold]",
        "CONTRACT",
        "lowest $",
        "equity request of $20,000,000 entered",
        "books closed through",
        "'zz' is not on the menu",
        "enter what the menu shows",
    ):
        assert text in shown
    assert "\x1b" not in shown
    assert session.facts()["month"] == 4


def test_bad_entries_are_asked_again_and_cost_nothing(env, monkeypatch):
    session = ArenaSession(env, 1)
    # a mistyped amount, then one that would be an action if it were taken for a choice of the menu
    lines = ["6", "gold", "1", "lots", "-5", "7", "6", "b", "3", "user_growth", "b"]
    lines += ["2", "99", "income_statement", "77"]
    shown, over = play_lines(monkeypatch, session, lines)
    shown = " ".join(shown.split())
    assert over is None
    assert "'lots'; b goes back to the menu" in shown
    assert "instrument 'gold'" in shown and "indicators 'user_growth'" in shown and "document '99'" in shown
    assert shown.count("amount must be a number from ") == 2
    assert "month must lie from -1 to -1" in shown
    assert (session.facts()["month"], session.facts()["open_requests"][0]["amount"]) == (1, 7)
    assert session.facts()["tool_calls_left"] == 20


def test_enter_at_the_menu_ends_no_month(env, monkeypatch):
    session = ArenaSession(env, 1)
    play_lines(monkeypatch, session, [""] * 5)
    assert session.calls_made == 0


def test_what_was_entered_last_is_the_next_default(env, monkeypatch):
    session = ArenaSession(env, 1)
    shown, _ = play_lines(monkeypatch, session, ["6", "debt", "350k", "6", "", "", "q"])
    assert "[350,000]" in shown
    assert shown.count("debt request of $350,000 entered") >= 1


def test_menus_tell_no_price_that_is_in_the_contracts(env, monkeypatch):
    session = ArenaSession(env, 1)
    shown, _ = play_lines(monkeypatch, session, ["4", *[""] * 10, "b", "q"])
    assert "servicing_cost has no default, enter a value" in " ".join(shown.split())
    for price in ("18", "88,000", "88000", "390"):
        assert price not in shown.split("Choice")[1]
    assert session.facts()["tool_calls_left"] == 20


def test_places_do_not_compare_under_other_rules(monkeypatch):
    for rules, other in (({}, False), ({"delay_max": 1}, True)):
        session = ArenaSession(arena_jax.make(**rules), 1)
        shown, _ = play_lines(monkeypatch, session, ["7"] * 60)
        assert ("They played by other rules" in shown) is other


def test_the_end_shows_score_and_place(env, monkeypatch):
    session = ArenaSession(env, 1)
    shown, over = play_lines(monkeypatch, session, ["c", "1", "7", "1"] + ["7"] * 60)
    assert over is True
    assert "the chart begins when cash has been verified in two months" in shown
    assert shown.count("Jan 2xx0 to Feb 2xx0") == 2  # in the second month and at the end
    assert "The company is bankrupt." in shown
    assert "Score: $0" in shown
    assert re.search(r"Place 1\d among you and the 27 published players", shown)
    assert "476.7M" in shown


def test_place_among_the_published():
    assert standing(5e8)[0] == 1
    assert standing(1e8)[0] == 2
    place, rows = standing(0.0)
    assert place == 1 + sum(value > 0 for _, value in rows)


def test_charts():
    lines = cash_chart([(0, 15e6), (1, 7.5e6), (3, 15e6)], 80, 4).split("\n")
    assert lines[0] == "   $15.0M ┤█  █"
    assert lines[2] == "          ┤██ █"
    assert lines[3] == "          ┤██ █"
    assert lines[4] == "       $0 └────"
    assert lines[-1].strip() == "Jan 2xx0 to Apr 2xx0"
    wide = cash_chart([(month, 1e6 * month) for month in range(132)], 80).split("\n")
    assert max(map(len, wide)) <= 80
    fall = cash_chart([(0, 20e6), (1, 10e6), (2, -2e6), (3, -20e6)], 80, 4).split("\n")
    assert [line.rstrip() for line in fall[:-1]] == [
        "   $20.0M ┤█",
        "          ┤██",
        "       $0 ├────",
        "          ┤  ▔█",
        "  -$20.0M ┤   █",
    ]
    assert "-$5.0M ┤ █" in cash_chart([(0, -1e6), (1, -5e6)], 80, 2)
    assert sparkline([1, 2, 3]) == "▁▄█"
    assert sparkline([2, 2]) == "▄▄"


@pytest.mark.parametrize(
    ("typed", "code", "expected"), [(b"\xff\xfe\nq\n", 0, "is not on the menu"), (None, 2, "closed")]
)
def test_input_that_is_no_text_or_closed_is_no_traceback(tmp_path, typed, code, expected):
    command = [sys.executable, "-m", "arena_jax.cli", "play", str(tmp_path / "game")]
    if typed is None:
        command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    done = subprocess.run(command, input=typed, capture_output=True)
    assert (done.returncode, "Traceback" in done.stderr.decode()) == (code, False)
    assert expected in (done.stdout + done.stderr).decode()


class Terminal:
    """`arena-jax play` behind a pseudo-terminal of a size."""

    def __init__(self, folder, width, height):
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "arena_jax.cli", "play", "game"],
            cwd=folder,
            env=environment | {"TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            # a shell's background job ignores Ctrl-C, and so would its children
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(slave)
        self.shown, self.ended = "", False

    def read(self, quiet=0.03, limit=120.0):
        """What is shown until nothing more comes and a question waits, or the program has ended."""
        found, until = "", time.monotonic() + limit
        while time.monotonic() < until:
            if select.select([self._master], [], [], quiet)[0]:
                try:
                    data = os.read(self._master, 65536)
                except OSError:  # the other side is closed
                    data = b""
                if not data:
                    self.ended = True
                    break
                found += data.decode(errors="replace")
            elif ANSI.sub("", found).endswith(": "):
                break
        self.shown += found
        return ANSI.sub("", found)

    def type(self, text):
        os.write(self._master, text.encode())

    def close(self):
        code = self.process.wait(30)
        os.close(self._master)
        return code


MENU = "Choice: "
# what is entered where there may be no default
ANSWERS = {"the note": "noted", "servicing_cost": "18", "fixed_cost": "88k", "acquisition_cost": "390"}


def play_until(terminal, month):
    """Answer questions until `month` months have passed in this sitting, or the end; what the last screen says."""
    passed, visits = 0, 0
    while True:
        screen = terminal.read()
        if terminal.ended:
            return screen
        passed += len(re.findall(r" · \d+ tool calls left", screen))
        if passed > month and screen.endswith(MENU):
            return screen
        if screen.endswith(MENU):
            visits += 1
            choices = {3: "1", 5: "2", 8: "3", 11: "4", 13: "5", 17: "8", 19: "9"}
            terminal.type(f"{choices.get(visits % 40, '6')}\n")
        else:
            question = screen.split("\n")[-1]
            found = [answer for words, answer in ANSWERS.items() if words in question]
            terminal.type(f"{found[0] if found else ''}\n")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_a_whole_game_in_a_terminal_interrupted_twice(tmp_path, width, height):
    shown = ""
    for sitting, interrupt in enumerate((signal.SIGINT, signal.SIGKILL if width == 120 else None, "end")):
        terminal = Terminal(tmp_path, width, height)
        last = play_until(terminal, 45 if interrupt != "end" else 200)
        if interrupt == "end":
            assert "You served your whole time." in last
        elif interrupt is None:
            terminal.type("\x04")  # hangs up
            assert "Go on with" in terminal.read()
        else:
            terminal.process.send_signal(interrupt)
            terminal.read(limit=10)
        code = terminal.close()
        assert code == {signal.SIGINT: 130, signal.SIGKILL: -9, None: 0, "end": 0}[interrupt]
        assert ("Going on where you stopped." in ANSI.sub("", terminal.shown)) == (sitting > 0)
        shown += terminal.shown
    plain = ANSI.sub("", shown)
    # the terminal itself wraps what is typed after a question
    too_long = [line for line in plain.split("\n") if len(line) > width and "]: " not in line]
    assert not too_long
    assert "Traceback" not in plain
    for text in ("Score: $", "Place ", "published players", "total assets", "lowest $", "noted", "indicator"):
        assert text in plain
    lines = [json.loads(line) for line in journal_path(tmp_path / "game", 0).read_bytes().splitlines()]
    assert sum("month_ended" in line.get("answer", {}) for line in lines) == 132
    assert lines[-1]["status"] == "survived"
