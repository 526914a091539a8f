"""What a job keeps beyond its end (`--output DIR`): a folder of the node, linked into the working directory.

The link is there before the job starts, so that nothing has to be copied at its end and nothing is lost when its
processes or the agent are killed. A later attempt on the same node finds what the earlier ones have written.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from torch_agent.kept import KeptFolders


class Outputs(KeptFolders):
    """A folder per job of a node; those of jobs that have tasks here are in use."""

    def link(self, job_id: str, output_dir: str, work: Path) -> Path:
        """Have the working directory lead to the folder that is kept. Returns that folder.

        Raises:
            OSError: it cannot be made, or the working directory has a file of this name.
        """
        kept, link = self.folder / job_id / output_dir, work / output_dir
        kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        if link.is_symlink():
            link.unlink()
        elif link.is_dir():  # uploaded: the job goes on with what is in it
            shutil.copytree(link, kept, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(link)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(kept)
        return kept
