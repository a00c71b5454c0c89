"""What the fork server loads once, so that each miner, validator and publisher is forked with it already in memory."""

import torch
from transformers import LlamaForCausalLM, Qwen3ForCausalLM

from subnet.nodes import miner, processes, publisher, validator

__all__ = ["LlamaForCausalLM", "Qwen3ForCausalLM", "miner", "processes", "publisher", "torch", "validator"]
