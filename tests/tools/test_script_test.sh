#!/bin/bash
# tools/test ends with its line of counts whatever fails on the way, and says what failed.
set -u

work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/test_script.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
mkdir -p "$work/tree/tools" "$work/bin"
cp tools/test tools/test_counts.py "$work/tree/tools/"
chmod +x "$work/tree/tools/test"

# script <name> <line>: a program of the fake tree
script() {
  printf '#!/bin/bash\n%s\n' "$2" > "$work/$1"
  chmod +x "$work/$1"
}

# ends <what> <text that it says> [flag]: last line and exit status are those of one failure
ends() {
  local what=$1 says=$2 out status
  shift 2
  out=$(cd "$work/tree" && PATH="$work/bin:$PATH" tools/test "$@" 2>&1)
  status=$?
  [ "$status" = 1 ] && [ "$(tail -n 1 <<<"$out")" = "0 passed, 1 failed, 0 skipped" ] &&
    grep -q "$says" <<<"$out" && return
  echo "FAILED: $what: exit status $status of:"
  echo "$out"
  failures=$((failures + 1))
}

script tree/tools/setup 'echo "no such package"; exit 100'
ends "setup fails" "tools/setup failed"

script tree/tools/setup 'exit 0'
script bin/bazel '[ "$1" = query ] || exit 0; echo "BUILD: syntax error" >&2; exit 7'
ends "the query fails" "BUILD: syntax error" --sanitize=thread

script bin/bazel 'exit 1'
ends "bazel writes no events" "failed: the build" --sanitize=address

ends "bazel fails under both" "failed: the build" --sanitize=address,undefined
ends "a fuzz target fails" "failed: the build" --fuzz=7

# A room's tests are those that depend on it, and those that read the tree.
mkdir -p "$work/tree/pserver"
script bin/bazel '[ "$1" = query ] || { echo "ran ${@: -2}"; exit 1; }
[[ $3 == *"rdeps(//..., //pserver/...)"*"tests(//tests:all)"* ]] && echo "//a:b_test //c:d_test"'
ends "a room's tests fail" "ran //a:b_test //c:d_test" --room=pserver
ends "a room's tests fail under a sanitizer" "ran //a:b_test //c:d_test" --room=pserver/ --sanitize=address

# pytest runs with the room python, and its test cases are counted with Bazel's.
mkdir -p "$work/tree/python" "$work/tree/tests/python"
script bin/bazel 'exit 0'
script tree/tools/python_protos '[ "$*" = python/weir/protos ]'
cases=$work/tree/tests/python/test_cases.py
echo 'def test_three_is_four(): assert 3 == 4' > "$cases"
ends "a test of pytest fails" "failed: tests/python .*test_three_is_four: .*3 == 4" --room=python
echo 'import nothing_of_this_name' > "$cases"
ends "pytest cannot read the tests" "failed: tests/python .*test_cases: collection failure" --room=python
rm "$cases"
ends "pytest finds no test" "failed: the build, or what comes before it" --room=python
script tree/tools/python_protos 'exit 1'
ends "the messages cannot be made" "failed: tests/python: NO RESULTS" --room=python
script tree/tools/python_protos 'exit 0'
cat > "$cases" <<'PY'
import os
import pytest
def test_the_package_is_found(): assert "python" in os.environ["PYTHONPATH"] and "WEIR_BIN_DIR" not in os.environ
@pytest.mark.skip("no WEIR_DATA")
def test_is_skipped(): pass
PY
said=$(cd "$work/tree" && WEIR_BIN_DIR=/none PATH="$work/bin:$PATH" tools/test --room=python 2>&1) &&
  [ "$(tail -n 1 <<<"$said")" = "1 passed, 0 failed, 1 skipped" ] || {
  echo "FAILED: results of pytest are not counted:"
  echo "$said"
  failures=$((failures + 1))
}
(cd "$work/tree" && tools/test --room=python --sanitize=thread > "$work/out" 2>&1)
[ $? = 2 ] && grep -q 'run without a sanitizer' "$work/out" || {
  echo "FAILED: python under a sanitizer is not refused"
  failures=$((failures + 1))
}

# With --peers nothing may skip, and the versions are told. The environment is there already.
cat >> "$cases" <<'PY'
@pytest.mark.skip("this machine has no GPU")
def test_needs_a_gpu(): pass
PY
mkdir -p "$work/tree/tests/e2e/processes" "$work/peers/python/bin"
echo pytest > "$work/tree/tests/python/peers.txt"
cp "$work/tree/tests/python/peers.txt" "$work/peers/python/installed.txt"
script peers/python/bin/python 'exec /usr/bin/python3 "$@"'
script peers/python/bin/tool 'exit 0'
script tree/tools/setup '[ "$*" = --peers ]'
script bin/bazel '[ "$1" != test ] || echo "bazel $* torchrun=$WEIR_TORCHRUN tool=$(command -v tool)"'
echo 'print("peers: pytest 7")' > "$work/tree/tests/python/peers.py"
(cd "$work/tree" && WEIR_PEERS_DIR=$work/peers WEIR_TORCHRUN=/a/torchrun PATH="$work/bin:$PATH" tools/test --peers) \
  > "$work/out" 2>&1
[ $? = 1 ] && [ "$(tail -n 1 "$work/out")" = "1 passed, 1 failed, 1 skipped" ] &&
  grep -q '^peers: pytest 7$' "$work/out" &&
  grep -q '^failed: tests/python .*test_is_skipped: skipped: no WEIR_DATA$' "$work/out" &&
  grep -q 'WEIR_TORCHRUN .*slurm_test .*foreign_launchers_test torchrun=/a/torchrun tool=.*/peers/python/bin/tool' \
    "$work/out" || {
  echo "FAILED: --peers does not run or does not count:"
  cat "$work/out"
  failures=$((failures + 1))
}
script tree/tools/setup 'exit 0'

# Arguments that it does not know are told, with what there is.
for wrong in --fuzz= --fuzz=0 --fuzz=7s --sanitize=memory --room= --room=nowhere --room=../pserver --peers=1; do
  (cd "$work/tree" && PATH="$work/bin:$PATH" tools/test "$wrong" > "$work/out" 2>&1)
  [ $? = 2 ] && grep -q 'usage: tools/test .*--fuzz\[=SECONDS\]' "$work/out" && continue
  echo "FAILED: $wrong is not refused:"
  cat "$work/out"
  failures=$((failures + 1))
done

exit "$((failures > 0))"
