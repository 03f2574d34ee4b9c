#!/bin/sh
# Builds the kernels of every instruction set with a small driver, and compares them with closed
# forms; no Python takes part. For another processor, name its compiler and an emulator:
#
#   tools/check_kernels.sh
#   CXX=x86_64-linux-gnu-g++ EMULATOR="qemu-x86_64 -cpu max -L /usr/x86_64-linux-gnu" \
#     tools/check_kernels.sh
#
#   CXX="python -m ziglang c++ -target aarch64-linux-musl" tools/check_kernels.sh
#   CXX="python -m ziglang c++ -target aarch64-windows-gnu -D__USE_MINGW_ANSI_STDIO=1" \
#     EMULATOR=wine tools/check_kernels.sh
#
# Debian has g++-x86-64-linux-gnu, qemu-user and wine, PyPI has ziglang. QEMU emulates AVX2, but not
# AVX-512. Zig has no __builtin_cpu_supports: for x86-64 add a libgcc.a or take another compiler.
set -eu
cd "$(dirname "$0")/.."
cxx=${CXX:-c++}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Compilers and emulators may be several words, and so are options: they stay without quotes.
options="-std=c++17 -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast"

compile() {  # the kernels for one instruction set: its name, then options
  isa=$1
  shift
  $cxx $options "$@" -DDIVLEARN_ISA="$isa" -c native/kernels.cpp -o "$folder/$isa.o"
  $cxx $options "$@" -DDIVLEARN_ISA="$isa" -ffp-contract=off -c native/machines.cpp \
    -o "$folder/machines-$isa.o"
}

compile baseline
defined=
case $($cxx -dumpmachine) in
  x86_64*)
    compile avx2 -mavx2 -mfma
    compile avx512 -mavx2 -mfma -mavx512f -mavx512dq -mavx512vl -mavx512bw
    defined=-DDIVLEARN_X86
    ;;
esac
$cxx -std=c++17 -O1 $defined tools/check_kernels.cpp "$folder"/*.o -o "$folder/check"
${EMULATOR:-} "$folder/check"
