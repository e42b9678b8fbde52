"""Clang's lock analysis of libraries and programs, as files that a test reads.

    thread_safety_reports(name = "reports", deps = ["//pserver", ...])

An aspect visits deps and all that they depend on. A source file is analysed when it, or a header of
its own directory that it includes, names a lock annotation or Mutex; a header that has no source
file is analysed, too. Files of one library are analysed as one source, in a build action of their own,
so that only what changed runs again. A report has a line "analysed FILE" for each file, and what clang found.
"""

load("//tools/bazel:precompiled.bzl", "RELOCATABLE")
load("//tools/bazel:together.bzl", "TogetherInfo")
load("//tools/bazel:weir.bzl", "prelude_of")

_ReportInfo = provider(fields = {"reports": "depset of files"})

_CLANG = "/usr/bin/clang++ -x c++%s -std=c++20 -iquote . -iquote $bin"

def _clang_prelude_impl(ctx):
    headers = depset(
        [ctx.file.header] + ctx.files.includes,
        transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps],
    )
    output = ctx.actions.declare_file(ctx.label.name + ".pch")
    ctx.actions.run_shell(
        command = "bin=$1 && " + _CLANG % "-header" + " " + RELOCATABLE + " $2 -o $3",
        arguments = [ctx.bin_dir.path, ctx.file.header.path, output.path],
        inputs = headers,
        outputs = [output],
        mnemonic = "PrecompileHeader",
    )
    return [DefaultInfo(files = depset([output], transitive = [headers]))]

clang_prelude = rule(
    implementation = _clang_prelude_impl,
    doc = "A header that clang reads once for all that it analyses.",
    attrs = {
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "includes": attr.label_list(allow_files = [".h"], doc = "Headers of this folder that it includes."),
        "deps": attr.label_list(providers = [CcInfo], doc = "Libraries with other headers that it includes."),
    },
)

_SCRIPT = """
set -u
report=$1
together=$2
bin=$3
shift 3
files=()
while [ "$1" != -- ]; do files+=("$1"); shift; done
shift
: > "$report"
held=()
for file in "${files[@]}"; do
  [ -f "$file" ] || continue
  directory=$(dirname "$file")
  seen=("$file")
  while read -r header; do
    if [ "$(dirname "$header")" = "$directory" ] && [ -f "$header" ]; then seen+=("$header"); fi
  done < <(sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"([^"]+)".*/\\1/p' "$file")
  grep -qE 'ABSL_GUARDED_BY|ABSL_PT_GUARDED_BY|ABSL_EXCLUSIVE_LOCKS_REQUIRED|[^a-z_]Mutex' "${seen[@]}" || continue
  echo "analysed $file" >> "$report"
  held+=("$file")
done
[ "${#held[@]}" -gt 0 ] || exit 0
"$together" open "$report.cc" "${held[@]}"
""" + _CLANG % "" + """ -fsyntax-only -Wno-everything -Wthread-safety -fno-caret-diagnostics "$@" "$report.cc" 2>&1 |
  grep -v 'warnings* generated' >> "$report"
[ "${PIPESTATUS[0]}" = 0 ] || echo "${held[*]}: clang failed" >> "$report"
rm "$report.cc"
"""

def _aspect_impl(target, ctx):
    reports = [
        dep[_ReportInfo].reports
        for dep in getattr(ctx.rule.attr, "deps", [])
        if _ReportInfo in dep
    ]
    if ctx.rule.kind not in ["cc_library", "cc_binary", "cc_test"] or target.label.workspace_name:
        return [_ReportInfo(reports = depset(transitive = reports))]

    files = []
    for dep in getattr(ctx.rule.attr, "srcs", []) + getattr(ctx.rule.attr, "hdrs", []):
        files += dep[TogetherInfo].sources if TogetherInfo in dep else dep.files.to_list()

    # Generated files hold no locks of ours.
    files = [f for f in files if f.is_source and f.extension in ["cc", "h"]]
    stems = [f.path[:-len(".cc")] for f in files if f.extension == "cc"]
    files = [f for f in files if f.extension == "cc" or f.path[:-len(".h")] not in stems]
    if not files:
        return [_ReportInfo(reports = depset(transitive = reports))]

    contexts = [target[CcInfo].compilation_context] if CcInfo in target else []
    contexts += [dep[CcInfo].compilation_context for dep in ctx.rule.attr.deps if CcInfo in dep]
    report = ctx.actions.declare_file(target.label.name + ".thread_safety")
    args = ctx.actions.args()
    args.add_all([report, ctx.file._together, ctx.bin_dir.path])
    args.add_all(files)
    args.add("--")
    for context in contexts:
        args.add_all(context.system_includes, before_each = "-isystem", uniquify = True)
        args.add_all(context.includes, before_each = "-I", uniquify = True)
        args.add_all(context.defines, format_each = "-D%s", uniquify = True)
    machine = [opt for opt in getattr(ctx.rule.attr, "copts", []) if opt.startswith("-m")]
    args.add_all(machine)

    preludes = {"prelude": ctx.files._prelude, "job_prelude": ctx.files._job_prelude}
    prelude = [] if machine else preludes[prelude_of(target.label.package)]
    for pch in [f for f in prelude if f.extension == "pch"]:
        args.add_all(["-Xclang", "-isysroot", "-Xclang", ".", "-Xclang", "-fno-validate-pch", "-include-pch", pch])
    ctx.actions.run_shell(
        command = _SCRIPT,
        arguments = [args],
        tools = [ctx.file._together],
        inputs = depset(
            files + prelude +
            [f for attr in ["srcs", "hdrs"] for dep in getattr(ctx.rule.attr, attr, []) for f in dep.files.to_list()],
            transitive = [context.headers for context in contexts],
        ),
        outputs = [report],
        mnemonic = "ThreadSafety",
        progress_message = "Analysing the locks of %s" % target.label,
    )
    return [_ReportInfo(reports = depset([report], transitive = reports))]

_aspect = aspect(
    implementation = _aspect_impl,
    attr_aspects = ["deps"],
    attrs = {
        "_together": attr.label(default = "//tools/bazel:together.sh", allow_single_file = True),
        "_prelude": attr.label(default = "//tools/bazel:analysed_prelude"),
        "_job_prelude": attr.label(default = "//tools/bazel:analysed_job_prelude"),
    },
)

def _reports_impl(ctx):
    reports = depset(transitive = [dep[_ReportInfo].reports for dep in ctx.attr.deps])
    return [DefaultInfo(files = reports, runfiles = ctx.runfiles(transitive_files = reports))]

thread_safety_reports = rule(
    implementation = _reports_impl,
    doc = "The reports of deps and all that they depend on, as files.",
    attrs = {"deps": attr.label_list(aspects = [_aspect], mandatory = True)},
)
