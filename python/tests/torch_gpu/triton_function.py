"""Compiles a Triton kernel that calls a schedule of `roundelay emit --cuda-device`, as far as a cubin.

    python python/tests/torch_gpu/triton_function.py [--algorithm all_reduce.two_shot] [--ranks 2] [--keep FOLDER]

Triton links functions from LLVM bitcode (`extern_libs`). NVRTC, which compiles the header for kernels of CUDA, gives no
bitcode, so clang does, with the words of CUDA that the header uses; it needs no CUDA toolkit, and no GPU. Prints what
came out, and ends with 77 and the reason where something is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WORDS = """
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#include <__clang_cuda_builtin_vars.h>
#define WORD static __device__ __forceinline__
WORD void __syncwarp(unsigned lanes = 0xffffffff) { __nvvm_bar_warp_sync(lanes); }
WORD float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
WORD unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
WORD double __longlong_as_double(long long bits) { return __builtin_bit_cast(double, bits); }
WORD long long __double_as_longlong(double value) { return __builtin_bit_cast(long long, value); }
WORD float __double2float_rn(double value) { return (float)value; }
WORD double fabs(double value) { return __builtin_fabs(value); }
WORD float fabsf(float value) { return __builtin_fabsf(value); }
WORD float __fadd_rn(float a, float b) { return __nvvm_add_rn_f(a, b); }
WORD double __dadd_rn(double a, double b) { return __nvvm_add_rn_d(a, b); }
WORD float __fmul_rn(float a, float b) { return __nvvm_mul_rn_f(a, b); }
WORD double __dmul_rn(double a, double b) { return __nvvm_mul_rn_d(a, b); }
WORD float __fdiv_rn(float a, float b) { return __nvvm_div_rn_f(a, b); }
WORD double __ddiv_rn(double a, double b) { return __nvvm_div_rn_d(a, b); }
"""
"""The words of CUDA that headers use, for clang without CUDA's own headers."""
FUNCTION = """
extern "C" __device__ int roundelay_call(unsigned long long handle, unsigned long long data, unsigned long long count) {
    schedule::call(*(const schedule::Handle *)handle, (void *)data, count);
    return 0;
}
"""
THREADS = 512
"""The threads of a block that take part in a call: 16 warps."""


def missing(program: str | None, clang: str | None) -> str:
    """Return what is not there, or nothing."""
    if program is None:
        return "the program roundelay is not on PATH"
    return "" if clang else "there is no clang: CLANG names one"


def bitcode(program: str, clang: str, options: argparse.Namespace, folder: Path) -> Path:
    """Return a file of bitcode with the schedule as a function of three 64-bit numbers."""
    header = subprocess.run(
        [program, "emit", "--cuda-device", options.algorithm, "-n", str(options.ranks), "--name", "schedule"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    source, made = folder / "schedule.cu", folder / "schedule.bc"
    source.write_text(WORDS + header + FUNCTION)
    # Triton's modules flush subnormal numbers, and a library must say the same.
    flags = ["-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "-nocudainc", "-nocudalib", "-std=c++17"]
    flags += ["-O2", "-fgpu-flush-denormals-to-zero", "-emit-llvm", "-c", str(source), "-o", str(made)]
    subprocess.run([clang, *flags, *os.environ.get("CLANG_FLAGS", "").split()], check=True)
    return made


def compile_kernel(library: Path) -> Any:
    """Compile a kernel that doubles its data, calls the schedule, and adds one."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.language import core

    word = core.dtype("int64")

    @core.extern
    def roundelay_call(handle, data, count, _semantic=None):  # type: ignore[no-untyped-def]
        types = {(word, word, word): ("roundelay_call", core.dtype("int32"))}
        arguments = [handle, data, count]
        return core.extern_elementwise("", "", arguments, types, is_pure=False, _semantic=_semantic)

    def kernel(handle, data, count, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.arange(0, SIZE)
        tl.store(data + at, tl.load(data + at) * 2)
        roundelay_call(handle, data.to(tl.int64, bitcast=True), count)
        tl.store(data + at, tl.load(data + at) + 1)

    kernel.__globals__.update(tl=tl, roundelay_call=roundelay_call)
    signature = {"handle": "i64", "data": "*fp32", "count": "i64", "SIZE": "constexpr"}
    source = triton.compiler.ASTSource(fn=triton.jit(kernel), signature=signature, constexprs={"SIZE": THREADS})
    given = {"num_warps": THREADS // 32, "extern_libs": {"roundelay": str(library)}}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=given)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="all_reduce.two_shot")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--keep", help="a folder for the source, the bitcode and the PTX")
    options = parser.parse_args()
    program = os.environ.get("ROUNDELAY_COMMAND") or shutil.which("roundelay")
    clang = os.environ.get("CLANG") or shutil.which("clang")
    lacking = missing(program, clang)
    if lacking or program is None or clang is None:
        print(lacking)
        return 77
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        made = compile_kernel(bitcode(program, clang, options, folder))
        text = made.asm["ptx"]
        (folder / "kernel.ptx").write_text(text)
    barriers = text.count("bar.sync")
    unresolved = ".extern .func" in text
    print(f"a cubin of {len(made.asm['cubin'])} bytes, {barriers} barriers, {THREADS} threads")
    return 0 if barriers and not unresolved and f".reqntid {THREADS}" in text else 1


if __name__ == "__main__":
    sys.exit(main())
