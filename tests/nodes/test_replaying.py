"""Where whoever repeats a verdict gets its bytes: what is wrong at one place is looked for at the next."""

from pathlib import Path

from subnet.audit.evidence import Chunk
from subnet.audit.pinned import Pack, make_pack
from subnet.canonical import digest
from subnet.nodes.evidence import State
from subnet.nodes.replaying import Folders, PublicSource
from subnet.wire.merkle import chunk_proof, merkle_root


async def test_a_wrong_chunk_in_a_pinned_pack_does_not_hide_the_right_one_elsewhere(tmp_path: Path) -> None:
    """An accuser may pin whatever it likes; the state itself may lie beside it."""
    data = bytes(range(256)) * 300
    proof = tuple(chunk_proof(data, 0))
    pack = make_pack(Pack(chunks={0: Chunk(data=b"?" + data[1:65536], proof=proof)}))
    (tmp_path / digest(pack)).write_bytes(pack)
    (tmp_path / merkle_root(data)).write_bytes(data)
    source = PublicSource(Folders([tmp_path]), None, "", {}, pack=digest(pack))
    state = State(holder="miner", root=merkle_root(data), size_bytes=len(data))
    assert await source.chunk(state, 0) == Chunk(data=data[:65536], proof=proof)
