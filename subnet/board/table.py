"""The board's facts as text for a terminal: plain ASCII, readable at 100 columns, safe against hostile names.

Takes the JSON document of `subnet.board.facts` and nothing else. Knows nothing of where it is written.
"""

from collections.abc import Iterable, Sequence
from typing import Any

Facts = dict[str, Any]

LINE_CHARS = 100
HOTKEY_CHARS = 9
MINERS_SHOWN = 40
ROUNDS_SHOWN = 20
FAILS_SHOWN = 12
FAULTS_SHOWN = 3
PENDING_SHOWN = 4
NAME_CHARS = 24
UNITS = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")


def ascii_only(value: object, limit: int = NAME_CHARS) -> str:
    """The value as printable ASCII of at most `limit` characters, so that no name moves the cursor or the columns."""
    text = "".join(char if " " <= char <= "~" else "?" for char in str(value))
    return text if len(text) <= limit else text[: limit - 2] + ".."


def short(hotkey: object) -> str:
    """A hotkey as people compare it: its first four and its last three characters."""
    text = ascii_only(hotkey, 64)
    return text if len(text) <= HOTKEY_CHARS else f"{text[:4]}..{text[-3:]}"


def quantity(value: int | float | None) -> str:
    """A number with three digits and a unit letter: 1234567 is 1.23M."""
    if value is None:
        return "-"
    size, unit = float(value), 0
    while abs(size) >= 999.5 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f}" if unit == 0 and size == int(size) else f"{size:.3g}{UNITS[unit]}"


def number(value: int | float | None, digits: int = 3) -> str:
    """A number with fixed digits; a dash for none."""
    return "-" if value is None else f"{value:.{digits}f}"


def board(facts: Facts) -> str:
    """The whole board: the run in a few lines, its rounds, its miners, what was refuted or forfeited and why."""
    wrong = refuted_lines(facts) + forfeit_lines(facts) + dissent_lines(facts) + dispute_lines(facts)
    blocks = [summary_lines(facts), rounds_lines(facts), miners_lines(facts), wrong]
    return "\n\n".join("\n".join(line[:LINE_CHARS] for line in lines) for lines in blocks if lines)


def summary_lines(facts: Facts) -> list[str]:
    """The run, the audit and the ledger, a line each."""
    run, audit, chain, ledger = facts["run"], facts["audit"], facts["chain"], facts["ledger"]
    where = (
        f"{ascii_only(chain['network'])} netuid {chain['netuid']} block {chain['block']}" if chain else "ledger only"
    )
    return [
        f"run {ascii_only(run['id'], 12)}  {where}  {quantity(facts['model']['parameters'])} parameters "
        f"in {run['stages']} stage{'' if run['stages'] == 1 else 's'}",
        progress_line(facts),
        f"audit: {audit['says']}; {audit['passed']} passed, {audit['failed']} refuted, {audit['void']} void",
        f"ledger: {ledger['events']} events, root {ascii_only(ledger['root'], 14)}, "
        f"{len(ledger['commitments'])} commitments on the chain",
        *fault_lines(facts),
        *accuser_lines(facts),
        *pending_lines(facts),
    ]


def fault_lines(facts: Facts) -> list[str]:
    """What the log proves against its orchestrator: the count, and the newest."""
    found = facts["orchestrator"]
    if not found["faults"]:
        return []
    shown = [f"  {ascii_only(each, LINE_CHARS - 2)}" for each in found["says"][-FAULTS_SHOWN:]]
    return [f"the orchestrator's faults, by its own signed log: {found['faults']}", *shown]


def forfeit_lines(facts: Facts) -> list[str]:
    """Rounds that a miner is not paid for, the newest ones, a line each."""
    rows = facts["forfeits"]
    return _newest(
        [
            f"forfeited: round {each['round']} of {short(each['hotkey'])} (stage {each['stage']}), "
            f"{ascii_only(each['reason'])}: {quantity(each['work'])} work in {each['segments']} segments is never paid"
            for each in rows
        ]
    )


def dissent_lines(facts: Facts) -> list[str]:
    """Merges that are not the manifest's, the newest ones, a line each."""
    return _newest(
        [
            f"dissent: {short(each['hotkey'])} merged stage {each['stage']} into round {each['round']} as "
            f"{ascii_only(each['root'], 14)}, the manifest has {ascii_only(each['manifest_root'], 14)}"
            for each in facts["dissents"]
        ]
    )


def dispute_lines(facts: Facts) -> list[str]:
    """Hops of which the two ends state different frames, the newest ones, a line each."""
    return _newest(
        [
            f"dispute: {short(each['sender'])} and {short(each['receiver'])} state different frames, "
            f"{each['frames']} in round {each['round']}; their audits show whose lie it is"
            for each in facts["disputes"]
        ]
    )


def _newest(lines: list[str]) -> list[str]:
    earlier = len(lines) - FAILS_SHOWN
    return [f"and {earlier} earlier of these; --json lists all"] * (earlier > 0) + lines[-FAILS_SHOWN:]


def accuser_lines(facts: Facts) -> list[str]:
    """Validators whose accusations others replayed and found false, a line for each."""
    return [
        f"accused falsely: {each['false']} segments, by validator {_whole(each['uid'])} ({short(each['hotkey'])})"
        for each in facts["validators"]
        if each.get("false")
    ]


def pending_lines(facts: Facts) -> list[str]:
    """The newest weights that a validator has committed and the chain not revealed, a line for each validator."""
    waiting = [(each, each["pending"][-1]) for each in facts["validators"] if each["pending"]]
    lines = [
        f"weights: those of validator {_whole(each['uid'])} ({short(each['hotkey'])}) were committed at block "
        f"{commit['block']}, revealed at about block {commit['reveal_block']}"
        for each, commit in waiting[:PENDING_SHOWN]
    ]
    more = len(waiting) - len(lines)
    return lines + [f"weights: {more} more validators have committed some"] * (more > 0)


def progress_line(facts: Facts) -> str:
    """Where the run is, in one line."""
    run = facts["run"]
    at = f"round {run['round'] + 1}/{run['rounds']} step {run['step']}/{run['steps']}"
    return (
        f"{ascii_only(run['phase']):7} {at}  loss {number(run['train_loss'])}  held-out {number(run['heldout_loss'])}  "
        f"{quantity(run['tokens'])} tokens  {quantity(round(run['tokens_per_s']))} tokens/s"
    )


def rounds_lines(facts: Facts) -> list[str]:
    """One line per round, the newest last."""
    names = ("round", "steps", "tokens", "train loss", "held-out", "seconds", "tokens/s", "activations", "sync")
    rows = [
        (
            str(each["round"]),
            str(each["steps"]),
            quantity(each["tokens"]),
            number(each["train_loss"]),
            number(each["heldout_loss"]),
            number(each["seconds"], 1),
            quantity(each["tokens_per_s"] and round(each["tokens_per_s"])),
            f"{quantity(each['bytes_activations'])}B",
            f"{quantity(each['bytes_sync'])}B",
        )
        for each in facts["rounds"][-ROUNDS_SHOWN:]
    ]
    return columns(names, rows) if rows else []


def miners_lines(facts: Facts) -> list[str]:
    """One line per miner, the heaviest first; work in FLOPs, audits as passed/failed/void."""
    miners = ranked(facts["miners"])
    if not miners:
        return ["no miner has joined yet"]
    cheats = any(row["cheat"] for row in miners)
    names = ("uid", "hotkey", "stage", "status", "committed", "refuted", "score", "weight", "incentive", "audits")
    rows = [_miner(row, cheats) for row in _shown(miners)]
    lines = columns(names + ("cheat",) * cheats, rows, left=("hotkey", "status", "cheat"))
    left_out = len(miners) - len(rows)
    return lines + [f"and {left_out} more; --json lists all"] * (left_out > 0)


def _shown(miners: list[Facts]) -> list[Facts]:
    """The heaviest, and the lightest, where cheaters stand."""
    return miners if len(miners) <= MINERS_SHOWN else miners[: MINERS_SHOWN // 2] + miners[-MINERS_SHOWN // 2 :]


def _miner(row: Facts, cheats: bool) -> tuple[str, ...]:
    cells = (
        _whole(row["uid"]),
        short(row["hotkey"]),
        _whole(row["stage"]),
        ascii_only(row["status"], 11),
        quantity(row["work_committed"]),
        quantity(row["work_refuted"]),
        quantity(row["score"]),
        number(row["weight"]),
        number(row["incentive"]),
        f"{row['passed']}/{row['failed']}/{row['void']}",
    )
    return cells + (ascii_only(row["cheat"] or "", 10),) * cheats


def columns(names: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = ()) -> list[str]:
    """Text columns two spaces apart under a ruled heading; numbers to the right, columns in `left` to the left."""
    widths = [max(len(cell) for cell in column) for column in zip(names, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = zip(names, cells, widths, strict=True)
        return "  ".join(cell.ljust(w) if name in left else cell.rjust(w) for name, cell, w in padded).rstrip()

    return [line(names), "  ".join("-" * width for width in widths), *(line(row) for row in rows)]


def ranked(miners: list[Facts]) -> list[Facts]:
    """The rows by weight, then by score, the heaviest first; equals by hotkey."""
    return sorted(miners, key=lambda row: (-(row["weight"] or 0), -(row["score"] or 0), row["hotkey"]))


def refuted_lines(facts: Facts) -> list[str]:
    """Whose work was refuted, how much of it, and why."""
    guilty = [row for row in ranked(facts["miners"]) if row["work_refuted"]]
    if not guilty:
        return ["refuted: no work of any miner"]
    lines = []
    for row in guilty[-FAILS_SHOWN:]:
        cheat = f", cheat {ascii_only(row['cheat'])}" if row["cheat"] else ""
        lines.append(
            f"refuted: {quantity(row['work_refuted'])} of {quantity(row['work_committed'])} work of "
            f"{short(row['hotkey'])} (uid {_whole(row['uid'])}, stage {_whole(row['stage'])}{cheat}), "
            f"weight {number(row['weight'])}"
        )
        fails = list(_fails_of(facts, row["hotkey"])) or [_reason(row)]
        lines += [f"  {line}" for line in fails]
    return lines


def _fails_of(facts: Facts, hotkey: str) -> Iterable[str]:
    seen = set()
    for each in facts["audits"]:
        where = (each["round"], each["reason"])
        if each["hotkey"] == hotkey and each["verdict"] == "fail" and where not in seen:
            seen.add(where)
            yield (
                f"round {each['round']}: {ascii_only(each['reason'])}, distance {each['distance']:.2g} "
                f"where {each['tolerance']:.2g} is allowed (audit {ascii_only(each['id'], 12)})"
            )


def _reason(row: Facts) -> str:
    return f"reason: {ascii_only(row['reason'] or 'built on refuted work')}"


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)
