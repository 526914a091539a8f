"""The library that an agent preloads into the tasks of virtual GPUs: no program notices it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
CASES = Path(__file__).with_name("allocator_cases.py")


def run(library: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    preloaded = {**os.environ, "LD_PRELOAD": str(library), **environment}
    return subprocess.run(command, env=preloaded, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "case",
    [
        "numpy_as_ever",
        "every_way_to_allocate_limited",
        "more_than_the_range_is_libcs",
        "moved_bytes_are_the_same_limited",
        "large_blocks_move_limited",
        "large_blocks_move_without_huge_pages_limited",
        "what_does_not_fit_onto_the_host_stays_whole_limited",
        "what_another_thread_reads_while_it_moves_is_right_limited",
        "a_fork_has_its_own_limited",
        "what_another_thread_writes_at_a_fork_is_kept_limited",
        "children_that_are_other_programs_limited",
        "threads_limited",
        "what_another_thread_has_made_moves_when_it_is_settled",
        "sizes_that_do_not_come_back_are_let_go",
        "ends_with_memory_on_the_host_limited",
    ],
)
def test_memory_is_as_programs_expect_it(library: Path, case: str):
    done = run(library, sys.executable, str(CASES), case)
    assert (done.returncode, done.stderr) == (0, "")


PROGRAMS = {
    "bash": ["bash", "-c", 'for i in {1..300}; do x+="line $i "; done; echo "${#x}"; seq 20000 | sort -rn | head -1'],
    "sort": ["sort", "--parallel=2", __file__],
    "git": ["git", "--version"],
    "python": [sys.executable, "-I", "-c", "print(sum(len(str(n)) for n in range(200_000)))"],
}


def library_of(path: Path, source: str) -> Path:
    """A shared library that is compiled of C."""
    path.with_suffix(".c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, path.with_suffix(".c"), "-ldl"], check=True)
    return path


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_without_torch_write_what_they_write_without_it(library: Path, program: str):
    if shutil.which(PROGRAMS[program][0]) is None:
        pytest.skip(f"{program} is not installed")
    preloaded = run(library, *PROGRAMS[program])
    plain = subprocess.run(PROGRAMS[program], capture_output=True, text=True, check=True)
    assert (preloaded.returncode, preloaded.stdout, preloaded.stderr) == (0, plain.stdout, plain.stderr)


def test_a_library_that_allocates_before_it_has_begun_gets_memory(library: Path, tmp_path: Path):
    early = library_of(
        tmp_path / "early.so",
        "#include <malloc.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        "__attribute__((constructor)) static void early(void) {\n"
        "  void *p, *q = malloc(10); size_t usable = malloc_usable_size(q);\n"
        '  printf("%d %d %d\\n", posix_memalign(&p, 64, 100000), usable >= 10, !!realloc(q, 100)); }\n',
    )
    done = run(library, "/bin/true", LD_PRELOAD=f"{library}:{early}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 1 1\n", "")


def test_what_a_user_preloads_still_gets_all_that_is_not_a_gpus(library: Path, tmp_path: Path):
    users = library_of(
        tmp_path / "users.so",
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdlib.h>\nint users_calls;\n"
        "int posix_memalign(void **p, size_t a, size_t n) {\n"
        '  users_calls++; int (*next)(void **, size_t, size_t) = dlsym(RTLD_NEXT, "posix_memalign");\n'
        "  return next(p, a, n); }\n",
    )
    script = (
        "import ctypes; lib = ctypes.CDLL(None); at = ctypes.c_void_p()\n"
        "lib.posix_memalign(ctypes.byref(at), ctypes.c_size_t(64), ctypes.c_size_t(1 << 20)); lib.free(at)\n"
        "print(ctypes.c_int.in_dll(lib, 'users_calls').value)"
    )
    done = run(library, sys.executable, "-I", "-c", script, LD_PRELOAD=f"{library}:{users}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
