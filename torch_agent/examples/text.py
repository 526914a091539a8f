"""Text that every Python installation has: the sources of its standard library."""

import pathlib
import sysconfig

import torch

MODULES = (
    "argparse",
    "ast",
    "asyncio/base_events",
    "datetime",
    "decimal",
    "inspect",
    "pathlib",
    "subprocess",
    "typing",
)


def characters():
    """The text as a tensor of character codes below 128."""
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = [library / f"{name}.py" for name in MODULES]
    text = "".join(path.read_text(errors="ignore") for path in files if path.exists())
    return torch.tensor([min(ord(c), 127) for c in text], dtype=torch.long)


def text_batches(batch_size, length):
    """Endless pairs (input, next characters), each batch_size x length."""
    data = characters()
    while True:
        starts = torch.randint(0, len(data) - length - 1, (batch_size,))
        windows = torch.stack([data[s : s + length + 1] for s in starts])
        yield windows[:, :-1], windows[:, 1:]
