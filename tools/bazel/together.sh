#!/bin/sh
# Writes sources into one, which a compiler then takes as it takes each of them.
#
#   together.sh apart|open OUTPUT SOURCE...
#
# What stands in a source's nameless namespace does not meet what stands in that of its neighbours: it gets a namespace
# with the name of the file around it. With "open" the rest of the source may use it. All headers come first, so that
# they see nothing of the sources. The directive #line makes messages of compilers, __FILE__ and debuggers name the
# source itself. A header among the sources is included.
set -eu
mode=$1
out=$2
shift 2
{
  for file; do
    case "$file" in
      *.h) printf '#include "%s"\n' "$file" ;;
      # Includes that no condition decides on.
      *) awk '/^#if/ { depth++ } /^#endif/ { depth-- } /^#include/ && depth == 0' "$file" ;;
    esac
  done
  for file; do
    name=$(basename "$file" .cc)_cc
    use=
    [ "$mode" = apart ] || use="using namespace $name;"
    case "$file" in *.h) continue ;; esac
    printf '#line 1 "%s"\n' "$file"
    sed "s|^namespace {\$|namespace $name { namespace {|; s|^}  // namespace\$|} } $use|" "$file"
  done
} > "$out"
