"""longspan as the attention of Hugging Face transformers' models (docs/guides/models.md).

Importing this registers the name "longspan" with transformers; a model uses it after `use(model)`
or when made with ``attn_implementation="longspan"``.
"""

from longspan.models.huggingface._attention import NAME
from longspan.models.huggingface._parallel import Batch, Parallel, use

__all__ = ["NAME", "Batch", "Parallel", "use"]
