"""The SDK's plain decoded records -> ours: commitments, endpoints, extrinsics. Imports no SDK and touches nothing."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from template.values import ChainView, Hotkey, NeuronInfo, PendingWeights, Record, Submitted, Uid


def view_of(graph: Any, *, block: int, block_hash: str, times: tuple[float, float], limits: Sequence[Any]) -> ChainView:
    """The SDK's metagraph as ours. `times`: block, block time; `limits`: rate limit, last epoch, first emission."""
    return ChainView(
        netuid=graph.netuid,
        block=block,
        block_hash=block_hash,
        time_s=times[0],
        block_time_s=times[1],
        tempo=graph.tempo,
        last_epoch_block=int(limits[1] or 0),
        weights_rate_limit_blocks=int(limits[0] or 0),
        owner_hotkey=graph.owner_hotkey,
        owner_coldkey=graph.owner_coldkey,
        started=limits[2] is not None,
        neurons=tuple(neuron_of(neuron, graph.raw) for neuron in graph.neurons),
    )


def submitted_of(result: Any) -> Submitted:
    """Where the SDK's result says that an extrinsic stands."""
    block, _, index = (result.extrinsic_id or "").partition("-")
    reveal_round = result.data.get("reveal_round")
    message = f"revealed by the chain at drand round {reveal_round}" if reveal_round else result.message
    return Submitted(
        block=int(block) if block else None,
        extrinsic_index=int(index) if index else None,
        message=message,
        reveal_round=int(reveal_round) if reveal_round else None,
    )


def pending_of(commits: Iterable[tuple[Any, Any]], hotkey: Hotkey | None) -> tuple[PendingWeights, ...]:
    """A hotkey's entries of the map of timelocked commits by epoch, or everybody's; oldest first."""
    found = [
        PendingWeights(hotkey=str(who), block=int(block), epoch=int(epoch), reveal_round=int(reveal_round))
        for epoch, entries in commits
        for who, block, _, reveal_round in entries
        if hotkey is None or who == hotkey
    ]
    return tuple(sorted(found, key=lambda each: each.block))


def shares_of(rows: Mapping[Uid, Mapping[Uid, float]]) -> dict[Uid, dict[Uid, float]]:
    """Weights by validator, each row over its sum. The chain sets to 0 what a replaced uid had: such a row is none."""
    sums = {uid: sum(row.values()) for uid, row in rows.items()}
    return {uid: {to: w / sums[uid] for to, w in row.items()} for uid, row in rows.items() if sums[uid]}


def neuron_of(neuron: Any, raw: dict[str, Any]) -> NeuronInfo:
    """One neuron of the SDK's metagraph; `raw` is the record that it was read from, for the exact u16 shares."""
    return NeuronInfo(
        uid=neuron.uid,
        hotkey=neuron.hotkey,
        coldkey=neuron.coldkey,
        stake_rao=neuron.total_stake.rao,
        validator_permit=neuron.validator_permit,
        active=neuron.active,
        incentive_u16=_at(raw.get("incentives"), neuron.uid),
        dividends_u16=_at(raw.get("dividends"), neuron.uid),
        emission_rao=neuron.emission.rao,
        endpoint=neuron.axon,
        last_update=neuron.last_update,
        registered_at=neuron.block_at_registration,
    )


def _at(column: Any, uid: Uid) -> int:
    return int(column[uid]) if column is not None and uid < len(column) else 0


def endpoint_of(axon: Any) -> tuple[str | None, int]:
    """("ip:port", block of serving) of an `Axons` record; (None, 0) where nothing was served."""
    if not isinstance(axon, dict) or not int(axon.get("ip") or 0):
        return None, 0
    return endpoint_text(ipaddress_of(int(axon["ip"]), int(axon["ip_type"])), int(axon["port"])), int(axon["block"])


def ipaddress_of(number: int, ip_type: int) -> str:
    """The written form of an address that the chain stores as a number."""
    return str(ipaddress.IPv6Address(number) if ip_type == 6 else ipaddress.IPv4Address(number))


def endpoint_text(host: str, port: int) -> str:
    """The "ip:port" form, with brackets for IPv6. Raises ValueError when `host` is not an address."""
    address = ipaddress.ip_address(host)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def commitment_bytes(info: Any) -> bytes | None:
    """The bytes of a commitment's `Raw` fields, in order; None when it has none."""
    fields = (info or {}).get("fields") or []
    found = [
        raw_bytes(value)
        for entry in fields
        if isinstance(entry, dict)
        for variant, value in entry.items()
        if variant.startswith("Raw")
    ]
    return b"".join(found) if found else None


def raw_bytes(value: Any) -> bytes:
    """Bytes as the codec shows them: hex with 0x, numbers, bytes, or text where the bytes were valid UTF-8."""
    if isinstance(value, str):
        return bytes.fromhex(value[2:]) if value.startswith("0x") else value.encode()
    return bytes(value)


def signer_of(extrinsic: Any) -> Hotkey | None:
    """Who signed a decoded extrinsic; None for an inherent."""
    address = extrinsic.get("address") if isinstance(extrinsic, dict) else None
    return address.get("Id") if isinstance(address, dict) else address


def commitment_in(extrinsic: Any, netuid: int) -> bytes | None:
    """What a decoded extrinsic commits on this subnet, or None when it is something else."""
    call = extrinsic.get("call") if isinstance(extrinsic, dict) else None
    if not isinstance(call, dict):
        return None
    if (call.get("call_module"), call.get("call_function")) != ("Commitments", "set_commitment"):
        return None
    arguments = {argument["name"]: argument["value"] for argument in call["call_args"]}
    return commitment_bytes(arguments["info"]) if int(arguments["netuid"]) == netuid else None


def record_of(hotkey: Hotkey, data: bytes, block: int, extrinsics: Iterable[Any], netuid: int) -> Record:
    """A commitment with its place: the last extrinsic of that block by which this hotkey committed these bytes."""
    index = None
    for position, extrinsic in enumerate(extrinsics):
        if signer_of(extrinsic) == hotkey and commitment_in(extrinsic, netuid) == data:
            index = position
    return Record(hotkey=hotkey, data=data, block=block, extrinsic_index=index)
