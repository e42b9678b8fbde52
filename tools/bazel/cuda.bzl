"""Finds the CUDA toolkit of this machine, if it has one.

Looked for: $CUDA_HOME ("none" for none), then nvcc on the PATH, then /usr/local/cuda. Without a toolkit the targets
exist and are empty, and @cuda//:defs.bzl says so.
"""

def _find_home(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "")
    if home == "none":
        return ""
    if home:
        if not ctx.path(home + "/bin/nvcc").exists:
            fail("CUDA_HOME is %s, which has no bin/nvcc" % home)
        return home
    nvcc = ctx.which("nvcc")
    if nvcc:
        return str(nvcc.realpath.dirname.dirname)
    if ctx.path("/usr/local/cuda/bin/nvcc").exists:
        return "/usr/local/cuda"
    return ""

def _cuda_toolkit_impl(ctx):
    home = _find_home(ctx)

    # Linking needs the libraries as well; a lone compiler counts as no toolkit.
    lib = ""
    for candidate in ["lib64", "lib", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu"]:
        if home and ctx.path(home + "/" + candidate + "/libcudart_static.a").exists:
            lib = home + "/" + candidate
            break
    have = bool(lib)

    # The runtime is linked in: a program built with the toolkit starts where there is none.
    cudart = ["-L" + lib, "-lcudart_static", "-ldl", "-lrt", "-lpthread"] if have else []

    # cuBLAS is half a gigabyte and always comes from the machine that runs the program.
    cublas = ["-L" + lib, "-Wl,-rpath," + lib, "-lcublas"] if have else []

    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.file("defs.bzl", "HAVE_CUDA = %r\nNVCC = %r\nCUDA_INCLUDE = %r\n" % (
        have,
        home + "/bin/nvcc" if have else "",
        home + "/include" if have else "",
    ))
    if have:
        ctx.symlink(home + "/include", "include")
    ctx.file("BUILD", """\
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    # What the runtime and cuBLAS need: every header listed is a link in every sandbox.
    hdrs = glob(
        ["include/*.h", "include/*.hpp", "include/crt/*"],
        allow_empty = True,
    ),
    includes = ["include"],
    defines = ["WEIR_HAVE_CUDA=%d"],
)

cc_library(name = "cudart", linkopts = %r, deps = [":headers"])

cc_library(name = "cublas", linkopts = %r, deps = [":cudart"])
""" % (1 if have else 0, cudart, cublas))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_HOME", "PATH"],
    local = True,
)
