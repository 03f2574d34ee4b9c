#!/bin/sh
# Tests of the compiled engine under the address and undefined-behaviour sanitizers of GCC.
#
#   tools/sanitize.sh [FOLDER]
#
# Builds the engine in FOLDER (build/sanitized), beside a copy of the package, and runs the tests
# there; ends with an error at the first thing that a sanitizer finds. PYTHON must have the test
# extra, BUILD_PYTHON (the same, if not given) nanobind. It takes some minutes.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/sanitized}
python=${PYTHON:-python3}
flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1"
tests="tests/engines tests/nearest/test_plane.py tests/kernels/test_machines.py tests/descriptors/test_covariances.py"

cmake -S native -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS="$flags" \
    -DPython_EXECUTABLE="$(command -v "${BUILD_PYTHON:-$python}")" > "$folder.log" 2>&1 \
    || { cat "$folder.log"; exit 1; }
cmake --build "$folder"
rm -rf "$folder/package"
mkdir -p "$folder/package"
cp -R src/divlearn "$folder/package/"
cp "$folder"/_native*.so "$folder/package/divlearn/engines/"

# Python itself is not sanitized: the library must come first, and what Python leaks is no matter.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1
UBSAN_OPTIONS=print_stacktrace=1
PYTHONPATH="$folder/package:tests"
PYTHONMALLOC=malloc OPENBLAS_NUM_THREADS=1
export LD_PRELOAD ASAN_OPTIONS UBSAN_OPTIONS PYTHONPATH PYTHONMALLOC OPENBLAS_NUM_THREADS
# An editable install would be imported in place of the copy: its finder has to go.
exec "$python" -c "
import sys, pathlib
sys.meta_path[:] = [f for f in sys.meta_path if 'Redirecting' not in type(f).__name__]
from divlearn.engines import _native
assert pathlib.Path('$folder').resolve() in pathlib.Path(_native.__file__).resolve().parents
import pytest
sys.exit(pytest.main(sys.argv[1:]))
" -q -p no:cacheprovider $tests
