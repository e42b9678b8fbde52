// Registry of rewrites: patterns of ops that fewer ops replace, with the same bits. A rewrite stands beside the
// operator that it brings in, so the pass that runs rewrites names no operator of a user's model. Registration happens
// before main; after that the registry is read-only and may be read from any thread.
#ifndef WEIR_FRAMEWORK_GRAPH_REWRITE_H_
#define WEIR_FRAMEWORK_GRAPH_REWRITE_H_

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "framework/graph/def_use.h"
#include "framework/graph/var_index.h"
#include "proto/program.pb.h"

namespace weir {

struct Rewrite {
  std::string name;
  // Rewrites run in rising order of `place`, in whatever order they are linked.
  int place = 0;
  // Types of the ops that it takes away. The rewrite does not run for a job that names one of them in train.cpu_ops.
  std::vector<std::string> replaces;
  // Rewrites block 0 of a trainer's main program, whose rows are prefetched. Returns whether anything changed; a second
  // run changes nothing.
  bool (*run)(v1::ProgramDesc* main) = nullptr;
};

// Returns the registered rewrites in order of their places.
std::vector<Rewrite> Rewrites();

struct RewriteRegistrar {
  // CHECK-fails if another rewrite has the name or the place.
  explicit RewriteRegistrar(Rewrite rewrite);
};
#define REGISTER_REWRITE(name) static const ::weir::RewriteRegistrar weir_rewrite_registrar_##name
// At namespace scope:  REGISTER_REWRITE(fuse_lookups)({.name = "fuse_lookups", ...});

// Edits of block 0 of a program. Ops stay at their places until Finish, so places remain valid while ops are removed
// and replaced. Borrows the program. Not thread-safe.
class OpRewriter {
 public:
  explicit OpRewriter(v1::ProgramDesc* program);

  int size() const { return block_->ops_size(); }
  const v1::OpDesc& op(int place) const { return block_->ops(place); }
  // Writers and readers as the edits so far leave them.
  const DefUse& uses() const { return uses_; }
  // Returns a variable that the program had from the start; nullptr if there is none.
  const v1::VarDesc* Var(std::string_view name) const { return vars_.Find(name); }

  // Returns the readers of a variable that is written once and wanted by ops alone: it is not persistable, and neither
  // a loss nor a pair of parameter and gradient names it. Empty for any other variable.
  absl::Span<const int> PrivateReaders(const std::string& var) const;
  // Returns the one reader of such a variable; -1 for none or several.
  int OnlyReader(const std::string& var) const;

  void AddVar(v1::VarDesc var) { *block_->add_vars() = std::move(var); }
  // Drops a variable that no op will name.
  void DropVar(const std::string& name) { dropped_.insert(name); }
  // Removes the op at `place`. CHECK-fails if it has been removed.
  void Remove(int place);
  // Replaces an op, or puts one where an op was removed.
  void Put(int place, v1::OpDesc op);

  // Removes ops and variables from the program; returns whether any op was removed. If none was, dropped variables
  // stay. No edits after that.
  bool Finish();

 private:
  v1::BlockDesc* const block_;
  const VarIndex vars_;
  DefUse uses_;
  std::set<std::string> kept_;  // variables that losses, `kept`, and pairs of parameter and gradient name
  std::set<int> removed_;
  std::set<std::string> dropped_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_REWRITE_H_
