# Copyright The roundelay authors. SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack.package import *


class Roundelay(Package):
    """Collective algorithms, written once, proved, and run over shared memory, networks and GPUs."""

    homepage = "https://github.com/roundelay/roundelay"
    url = "https://github.com/roundelay/roundelay/releases/download/v@VERSION@/roundelay-@VERSION@.tar.gz"

    license("MIT OR Apache-2.0", checked_by="roundelay")

    version("@VERSION@", sha256="@SHA256@")

    variant("rdma", default=False, description="InfiniBand and RoCE")
    variant("nccl", default=False, description="NCCL's interface")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("rdma-core", when="+rdma")
    depends_on("llvm+clang", type="build", when="+rdma")
    depends_on("cmake", type="build", when="+rdma")

    def install(self, spec, prefix):
        command = ["build", "--release", "--locked", "--offline", "-p", "roundelay-cli", "-p", "roundelay-ffi"]
        if spec.satisfies("+nccl"):
            command += ["-p", "roundelay-nccl"]
        if spec.satisfies("+rdma"):
            command += ["--features", "roundelay-cli/rdma"]
        which("cargo", required=True)(*command)
        mkdirp(prefix.bin, prefix.lib, prefix.include, prefix.share.man.man1)
        install("target/release/roundelay", prefix.bin)
        install("target/release/libroundelay.so", prefix.lib)
        if spec.satisfies("+nccl"):
            install("target/release/libroundelay_nccl.so", prefix.lib)
        install("ffi/include/roundelay.h", prefix.include)
        Executable(prefix.bin.roundelay)("man", prefix.share.man.man1)
