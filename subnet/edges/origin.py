"""Where a run starts that does not draw its parameters: an existing model, or an earlier run's checkpoint.

`start_of` reads it once, one stage at a time, and pins each stage's public state; `opening_public` reads the tensors of
one stage and no others, and compares what came out with that. Both use numpy alone. What is in the files is
`subnet.edges.weights`' business; how a model on the Hub is read, `subnet.edges.hub_files`'.
"""

import re
from pathlib import Path

import numpy as np

from subnet.config import RunConfig, StartConfig
from subnet.edges.weights import INDEX_FILE, SINGLE_FILE, FolderSource, Source, Weights
from subnet.errors import CheckpointError, ModelError
from subnet.model.cost import spans
from subnet.model.shapes import EMBEDDING, HEAD, geometry, span_shapes
from subnet.stage.layout import PublicState, StateLayout, public_to_bytes
from subnet.wire.merkle import merkle_root

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?")
UNUSED = "rotary_emb.inv_freq"  # a buffer that old checkpoints carry; it is computed
PICKLED = "pytorch_model.bin"


def is_hub_id(model: str) -> bool:
    """Whether `--model` names a model of the Hub: OWNER/NAME[@REVISION], and nothing here of that name."""
    return HUB_ID.fullmatch(model) is not None and not Path(model).exists()


def open_source(location: str, revision: str) -> Source:
    """The files of a model: of a folder, or of the Hub at a revision."""
    if not revision:
        return FolderSource(Path(location))
    from subnet.edges.hub_files import HubSource

    return HubSource(location, revision)


def has_weights(folder: Path) -> bool:
    """Whether a folder has parameters besides its configuration. Raises ModelError where they cannot be read safely."""
    if any((folder / name).is_file() for name in (INDEX_FILE, SINGLE_FILE)):
        return True
    pickled = [path.name for path in folder.glob("*.bin") if path.name.startswith(PICKLED.removesuffix(".bin"))]
    if pickled:
        raise ModelError(
            f"expected safetensors in {folder}, found {sorted(pickled)[0]}, whose reading could run its author's code; "
            "convert the model with transformers' save_pretrained, or name its config.json to draw parameters anew"
        )
    return False


def start_of(run: RunConfig, location: str, revision: str) -> StartConfig:
    """What pins the run to this model: reads it once, one stage at a time.

    Raises CheckpointError unless it has exactly the run's tensors, in their shapes; StoreError when it cannot be read.
    """
    weights = Weights(open_source(location, revision))
    check_names(run, weights)
    roots = tuple(merkle_root(_public(run, stage, weights)) for stage in range(run.stages))
    return StartConfig(location=location, revision=revision, roots=roots)


def opening_public(run: RunConfig, stage: int, source: Source | None = None) -> bytes:
    """The public state of a stage in round 0 of a run that starts from a model; only that stage's tensors are read.

    source: where they are, if not where the run says.
    Raises CheckpointError when the model is not the one that the run was made from, StoreError when it cannot be read.
    """
    assert run.start is not None, "a run that draws its parameters has no start to read"
    weights = Weights(source or open_source(run.start.location, run.start.revision))
    data = _public(run, stage, weights)
    if merkle_root(data) != run.start.roots[stage]:
        raise CheckpointError(
            f"expected the model that the run starts from at {run.start.location}, found other numbers in stage "
            f"{stage}; copy the run's own, or take it away, so that the stage is downloaded"
        )
    return data


def check_names(run: RunConfig, weights: Weights) -> None:
    """Raises CheckpointError unless the model has exactly the tensors of the run's."""
    expected = {_stored_name(run, name) for span in spans(run) for name in span_shapes(run, span)}
    ignored = {HEAD} if geometry(run.model).tied else set()
    found = {name for name in weights.names if not name.endswith(UNUSED)} - ignored
    missing, unexpected = sorted(expected - found), sorted(found - expected)
    if missing or unexpected:
        raise CheckpointError(
            f"expected {weights.source.name} to have exactly the {len(expected)} tensors of a "
            f"{run.model.architecture} of this configuration, found {len(missing)} missing ({', '.join(missing[:3])}) "
            f"and {len(unexpected)} unexpected ({', '.join(unexpected[:3])}); use a whole model with its config.json"
        )


def _stored_name(run: RunConfig, name: str) -> str:
    """Under which name the model's files have a tensor: a tied head is the embedding, whatever else lies there."""
    return EMBEDDING if name == HEAD and geometry(run.model).tied else name


def _public(run: RunConfig, stage: int, weights: Weights) -> bytes:
    """Parameters of the model, no outer momentum."""
    layout = StateLayout(run, stage)
    parameters = np.empty(layout.num_parameters, dtype=np.float32)
    for name, shape in layout.shapes.items():
        weights.read_into(_stored_name(run, name), shape, parameters[layout.slices[name]])
    momentum = np.zeros(layout.num_parameters, dtype=np.float32)
    return public_to_bytes(layout, PublicState(parameters=parameters, outer_momentum=momentum))
