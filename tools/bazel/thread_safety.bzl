"""Clang's lock analysis of libraries and programs, as files that a test reads.

    thread_safety_reports(name = "reports", deps = ["//pserver", ...])

An aspect visits deps and all that they depend on. A source file is analysed when it, or a header of
its own directory that it includes, names a lock annotation or Mutex; a header that has no source
file is analysed by itself. The analysis is a build action of each library, so that only what
changed runs again. A report has a line "analysed FILE" for each file, and what clang found.
"""

_ReportInfo = provider(fields = {"reports": "depset of files"})

_SCRIPT = """
set -u
report=$1
shift
files=()
while [ "$1" != -- ]; do files+=("$1"); shift; done
shift
: > "$report"
for file in "${files[@]}"; do
  [ -f "$file" ] || continue
  directory=$(dirname "$file")
  seen=("$file")
  while read -r header; do
    if [ "$(dirname "$header")" = "$directory" ] && [ -f "$header" ]; then seen+=("$header"); fi
  done < <(sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"([^"]+)".*/\\1/p' "$file")
  grep -qE 'ABSL_GUARDED_BY|ABSL_PT_GUARDED_BY|ABSL_EXCLUSIVE_LOCKS_REQUIRED|[^a-z_]Mutex' "${seen[@]}" || continue
  echo "analysed $file" >> "$report"
  /usr/bin/clang++ -x c++ -fsyntax-only -Wno-everything -Wthread-safety -fno-caret-diagnostics "$@" "$file" 2>&1 |
    grep -v 'warnings* generated' >> "$report"
  [ "${PIPESTATUS[0]}" = 0 ] || echo "$file: clang failed" >> "$report"
done
"""

def _aspect_impl(target, ctx):
    reports = [
        dep[_ReportInfo].reports
        for dep in getattr(ctx.rule.attr, "deps", [])
        if _ReportInfo in dep
    ]
    if ctx.rule.kind not in ["cc_library", "cc_binary", "cc_test"] or target.label.workspace_name:
        return [_ReportInfo(reports = depset(transitive = reports))]

    files = [
        f
        for attr in ["srcs", "hdrs"]
        for dep in getattr(ctx.rule.attr, attr, [])
        for f in dep.files.to_list()
        # Generated files hold no locks of ours.
        if f.is_source and f.extension in ["cc", "h"]
    ]
    stems = [f.path[:-len(".cc")] for f in files if f.extension == "cc"]
    files = [f for f in files if f.extension == "cc" or f.path[:-len(".h")] not in stems]
    if not files:
        return [_ReportInfo(reports = depset(transitive = reports))]

    contexts = [target[CcInfo].compilation_context] if CcInfo in target else []
    contexts += [dep[CcInfo].compilation_context for dep in ctx.rule.attr.deps if CcInfo in dep]
    report = ctx.actions.declare_file(target.label.name + ".thread_safety")
    args = ctx.actions.args()
    args.add(report)
    args.add_all(files)
    args.add_all(["--", "-std=c++20", "-iquote", ".", "-iquote", ctx.bin_dir.path])
    for context in contexts:
        args.add_all(context.system_includes, before_each = "-isystem", uniquify = True)
        args.add_all(context.includes, before_each = "-I", uniquify = True)
        args.add_all(context.defines, format_each = "-D%s", uniquify = True)
    args.add_all([opt for opt in getattr(ctx.rule.attr, "copts", []) if opt.startswith("-m")])
    ctx.actions.run_shell(
        command = _SCRIPT,
        arguments = [args],
        inputs = depset(
            [f for attr in ["srcs", "hdrs"] for dep in getattr(ctx.rule.attr, attr, []) for f in dep.files.to_list()],
            transitive = [context.headers for context in contexts],
        ),
        outputs = [report],
        mnemonic = "ThreadSafety",
        progress_message = "Analysing the locks of %s" % target.label,
    )
    return [_ReportInfo(reports = depset([report], transitive = reports))]

_aspect = aspect(implementation = _aspect_impl, attr_aspects = ["deps"])

def _reports_impl(ctx):
    reports = depset(transitive = [dep[_ReportInfo].reports for dep in ctx.attr.deps])
    return [DefaultInfo(files = reports, runfiles = ctx.runfiles(transitive_files = reports))]

thread_safety_reports = rule(
    implementation = _reports_impl,
    doc = "The reports of deps and all that they depend on, as files.",
    attrs = {"deps": attr.label_list(aspects = [_aspect], mandatory = True)},
)
