"""Board facts that no run gave: none, few or many miners, hostile names, nulls. For tests of what shows them."""

import random
from typing import Any

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e\"'&</script>{{7*7}}\n" + "A" * 40


def made_up(miners: int = 5, *, hostile: bool = False, rounds: int = 3, seed: int = 7) -> dict[str, Any]:
    """The document of `subnet.board.facts` for an invented run; the last miner cheats where there are two or more."""
    chance = random.Random(seed)
    rows = [_miner(uid, miners, chance, hostile) for uid in range(miners)]
    total = sum(row["score"] for row in rows) or 1
    for row in rows:
        row["weight"] = row["share"] = row["score"] / total
        row["incentive"] = row["weight"] if row["score"] else 0.0
    audits = [_audit(number, chance.choice(rows), chance) for number in range(12 * bool(rows))]
    return {
        "version": 1,
        "time_ms": 1_790_000_060_000,
        "run": _run(rounds),
        "model": _model(rows, hostile),
        "rounds": [_round(number, last=number == rounds - 1) for number in range(rounds)],
        "curve": [[step, 5.5 - 2.9 * (1 - 0.97**step)] for step in range(rounds * 40)],
        "heldout": [[number * 40, 5.5 - number] for number in range(rounds)],
        "miners": rows,
        "validators": [_validator(uid, hostile) for uid in range(2 * bool(rows))],
        "audit": {
            "segments": 96 * bool(rows),
            "audited": 31 * bool(rows),
            "passed": 29 * bool(rows),
            "failed": 2 * bool(rows),
            "accused": 0,
            "void": 1 * bool(rows),
            "audited_frac": 31 / 96 if rows else 0.0,
            "rate_frac": 0.34,
            "says": "about a third of all segments are audited (31 of 96)" if rows else "no segment is committed yet",
        },
        "audits": audits,
        "audits_total": len(audits),
        "forfeits": [_forfeit(row, hostile) for row in rows[1:3]],
        "dissents": [_dissent(row) for row in rows[1:2]],
        "disputes": [{"sender": row["hotkey"], "receiver": key(901), "round": 1, "frames": 2} for row in rows[1:2]],
        "orchestrator": {"faults": len(rows) // 4, "says": [HOSTILE if hostile else FAULT] * (len(rows) // 4)},
        "ledger": {"events": 1234, "root": "ab" * 32, "time_ms": 1_790_000_050_000, "commitments": []},
        "chain": {
            "network": HOSTILE if hostile else "local",
            "netuid": 1,
            "block": 321,
            "age_s": 0.4,
            "neurons": miners + 3,
            "weights_set": 2,
            "next_epoch_block": 340,
        },
    }


def key(number: int) -> str:
    """An invented hotkey of the usual length."""
    return f"5{random.Random(number).getrandbits(240):060x}"[:48]


def _miner(uid: int, count: int, chance: random.Random, hostile: bool) -> dict[str, Any]:
    guilty = count > 1 and uid == count - 1
    work = chance.randrange(10**15, 9 * 10**15)
    return {
        "uid": None if hostile and uid == 0 else uid,
        "hotkey": HOSTILE + str(uid) if hostile else key(uid),
        "stage": None if hostile and uid == 0 else uid % 2,
        "cheat": (HOSTILE if hostile else "scale") if guilty else None,
        "work_committed": work,
        "work_refuted": work if guilty else 0,
        "score": 0 if guilty else work,
        "weight": 0.0,
        "incentive": 0.0,
        "status": "quarantined" if guilty else "training",
        "reason": (HOSTILE if hostile else "delta") if guilty else "",
        "work_pending": 0,
        "work_unpaid": 0,
        "share": 0.0,
        "segments": 24,
        "audited": 2 if guilty else 6,
        "passed": 0 if guilty else 6,
        "failed": 2 if guilty else 0,
        "void": 1 if uid == 0 else 0,
        "step_ms": None if hostile and uid == 0 else chance.randrange(300, 900),
        "missed_steps": 0,
        "audit_rate": 0.34,
        "last_ms": None if hostile and uid == 0 else 1_790_000_040_000,
    }


def _audit(number: int, row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    failed = bool(row["work_refuted"])
    return {
        "id": f"{chance.getrandbits(256):064x}",
        "hotkey": row["hotkey"],
        "stage": row["stage"],
        "round": number // 4,
        "verdict": "fail" if failed else "pass",
        "reason": row["reason"] or "within",
        "segment": f"{chance.getrandbits(256):064x}",
        "validator": key(500),
        "drawn": True,
        "upheld": failed,
        "distance": 0.19 if failed else 1.2e-6,
        "tolerance": 1e-4,
    }


FAULT = "event 311: step 4 has the lanes [0], its wiring gives 2"


def _forfeit(row: dict[str, Any], hostile: bool) -> dict[str, Any]:
    return {
        "hotkey": row["hotkey"],
        "stage": row["stage"],
        "round": 1,
        "reason": HOSTILE if hostile else "unclosed",
        "segments": 4,
        "work": row["work_committed"],
    }


def _dissent(row: dict[str, Any]) -> dict[str, Any]:
    roots = {"root": "12" * 32, "manifest_root": "34" * 32}
    return {"hotkey": row["hotkey"], "stage": row["stage"], "round": 2, **roots}


def _run(rounds: int) -> dict[str, Any]:
    return {
        "id": "cd" * 32,
        "netuid": 1,
        "orchestrator": key(900),
        "phase": "train" if rounds else "waiting",
        "round": max(rounds - 1, 0),
        "rounds": 4,
        "step": 7 if rounds else 0,
        "steps": 40,
        "steps_done": max(rounds - 1, 0) * 40 + 7,
        "steps_total": 160,
        "tokens": rounds * 81920,
        "tokens_per_s": 4321.0 if rounds else 0.0,
        "train_loss": 2.61 if rounds else None,
        "heldout_loss": 2.58 if rounds > 1 else None,
        "begun_ms": 1_790_000_000_000 if rounds else None,
        "stages": 2,
    }


def _model(rows: list[dict[str, Any]], hostile: bool) -> dict[str, Any]:
    stages = [
        {
            "stage": stage,
            "blocks": [2 * stage, 2 * stage + 2],
            "parameters": 524_288,
            "root": "ef" * 32 if rows else None,
            "members": [row["hotkey"] for row in rows if row["stage"] == stage],
        }
        for stage in range(2)
    ]
    return {"architecture": HOSTILE if hostile else "LlamaForCausalLM", "parameters": 1_048_576, "stages": stages}


def _round(number: int, *, last: bool) -> dict[str, Any]:
    return {
        "round": number,
        "steps": 7 if last else 40,
        "tokens": 81920,
        "train_loss": 5.4 - number,
        "heldout_loss": None if last else 5.2 - number,
        "seconds": 19.2,
        "tokens_per_s": 4321.0,
        "bytes_activations": 52_428_800,
        "bytes_sync": 8_388_608,
    }


def _validator(uid: int, hostile: bool) -> dict[str, Any]:
    return {
        "uid": 100 + uid,
        "hotkey": HOSTILE + f"v{uid}" if hostile else key(500 + uid),
        "stake_rao": 10**12,
        "passed": 15,
        "failed": 1,
        "void": 0,
        "upheld": 1,
        "false": 0,
        "missed": 0,
        "canaries": {"drawn": 2, "caught": 2, "missed": 0},
        "seen_events": 1200,
        "seen_block": None if hostile else 320,
        "pending": [{"block": 310, "reveal_block": 330, "reveal_round": 31_000_000}] if uid else [],
    }
