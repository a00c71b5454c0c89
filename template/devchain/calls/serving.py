"""SubtensorModule: publishing an endpoint, with the chain's refusals."""

from typing import Any

from template.devchain.context import Context, Origin, ensure
from template.devchain.stakes import Reader

_LOOPBACK_V4 = 0x7F000001
_MAX_V4, _MAX_V6 = (1 << 32) - 1, (1 << 128) - 1


def is_valid_ip_type(ip_type: int) -> bool:
    """Only 4 and 6."""
    return ip_type in (4, 6)


def is_valid_ip(ip_type: int, address: int) -> bool:
    """No broadcast and no loopback; zero is allowed and means that nothing is served."""
    if ip_type == 4:
        return address < _MAX_V4 and address != _LOOPBACK_V4
    return address < _MAX_V6 and address != 1


def is_too_fast(reader: Reader, item: str, netuid: int, hotkey: str, block: int) -> bool:
    """Whether the hotkey published so recently that the rate limit still holds."""
    last = reader.get(item, netuid, hotkey)
    return last is not None and last["block"] != 0 and block - last["block"] < reader.get("ServingRateLimit", netuid)


def _check(ctx: Context, hotkey: str, item: str, args: dict[str, Any]) -> None:
    netuid = args["netuid"]
    ensure(bool(list(ctx.scan("IsNetworkMember", hotkey))), "HotKeyNotRegisteredInNetwork")
    ensure(is_valid_ip_type(args["ip_type"]), "InvalidIpType")
    ensure(is_valid_ip(args["ip_type"], args["ip"]), "InvalidIpAddress")
    ensure(not is_too_fast(ctx, item, netuid, hotkey, ctx.block), "ServingRateLimitExceeded")
    ensure(args["port"] != 0, "InvalidPort")


def serve_axon(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Publish where a neuron can be reached."""
    hotkey, netuid = origin.signed(), args["netuid"]
    _check(ctx, hotkey, "Axons", args)
    certificate = bytes_of(args.get("certificate", b""))
    if certificate:
        key = {"public_key": certificate[1:], "algorithm": certificate[0]}
        ctx.put("NeuronCertificates", netuid, hotkey, key)
    names = ("version", "ip", "port", "ip_type", "protocol", "placeholder1", "placeholder2")
    ctx.put("Axons", netuid, hotkey, {"block": ctx.block} | {name: args[name] for name in names})
    ctx.emit("AxonServed", (netuid, hotkey))


def serve_prometheus(ctx: Context, origin: Origin, args: dict[str, Any]) -> None:
    """Publish where a neuron's metrics can be read."""
    hotkey, netuid = origin.signed(), args["netuid"]
    _check(ctx, hotkey, "Prometheus", args)
    names = ("version", "ip", "port", "ip_type")
    ctx.put("Prometheus", netuid, hotkey, {"block": ctx.block} | {name: args[name] for name in names})
    ctx.emit("PrometheusServed", (netuid, hotkey))


def bytes_of(value: Any) -> bytes:
    """Bytes as the codec decodes them: hex text, plain text, or bytes."""
    if isinstance(value, str):
        return bytes.fromhex(value[2:]) if value.startswith("0x") else value.encode()
    return bytes(value)


CALLS = {
    "SubtensorModule.serve_axon": serve_axon,
    "SubtensorModule.serve_axon_tls": serve_axon,
    "SubtensorModule.serve_prometheus": serve_prometheus,
}
