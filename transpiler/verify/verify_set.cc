// VerifySet of transpiler/verify/verify_plan.h: what a trainer sends and asks for against what servers take and give,
// and who waits for whom.
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/norms_with_tables.h"
#include "framework/graph/training_mode.h"
#include "glog/logging.h"
#include "transpiler/verify/verify_plan.h"
#include "transpiler/verify/verify_rules.h"

namespace weir {
namespace {

// Events of one step, and which waits for which.
class WaitGraph {
 public:
  int Add(std::string name) {
    names_.push_back(std::move(name));
    edges_.emplace_back();
    return static_cast<int>(names_.size()) - 1;
  }
  void Wait(int who, int for_what) { edges_[static_cast<size_t>(who)].push_back(for_what); }

  // A cycle as text, from its first event around; "" when there is none.
  std::string Cycle() const {
    std::vector<int> state(names_.size(), 0);  // 1: on the path
    std::vector<std::pair<int, size_t>> path;
    for (size_t start = 0; start < names_.size(); ++start) {
      if (state[start] != 0) continue;
      path.push_back({static_cast<int>(start), 0});
      state[start] = 1;
      while (!path.empty()) {
        const int node = path.back().first;
        const auto& edges = edges_[static_cast<size_t>(node)];
        if (path.back().second == edges.size()) {
          state[static_cast<size_t>(node)] = 2;
          path.pop_back();
          continue;
        }
        const int next = edges[path.back().second++];
        if (state[static_cast<size_t>(next)] == 1) return Text(path, next);
        if (state[static_cast<size_t>(next)] != 0) continue;
        state[static_cast<size_t>(next)] = 1;
        path.push_back({next, 0});
      }
    }
    return "";
  }

 private:
  std::string Text(const std::vector<std::pair<int, size_t>>& path, int back_to) const {
    std::string text;
    bool on = false;
    for (const auto& [node, edge] : path) {
      on |= node == back_to;
      if (on) absl::StrAppend(&text, names_[static_cast<size_t>(node)], " waits for ");
    }
    return text + names_[static_cast<size_t>(back_to)];
  }

  std::vector<std::string> names_;
  std::vector<std::vector<int>> edges_;
};

// One step: every server waits for every trainer's send_barrier, a trainer's fetch_barrier for every server if it says
// sync, and each op of a trainer for the ones before it. Trainers are alike, so the first and the last stand for all.
absl::Status CheckWaits(const v1::ProgramDesc& trainer, absl::Span<const ServerSide> servers) {
  const v1::Plan& plan = trainer.plan();
  WaitGraph graph;
  std::vector<int> versions;
  for (const ServerSide& server : servers) versions.push_back(graph.Add(absl::StrCat("server ", server.index)));
  for (const int t : std::set<int>{0, plan.trainers() - 1}) {
    int before = -1;
    for (const v1::OpDesc& op : trainer.blocks(0).ops()) {
      if (op.type() != "send_barrier" && op.type() != "fetch_barrier") continue;
      const int event = graph.Add(absl::StrCat(op.type(), " of trainer ", t));
      if (before >= 0) graph.Wait(event, before);
      before = event;
      for (const int version : versions) {
        if (op.type() == "send_barrier") graph.Wait(version, event);
        if (op.type() == "fetch_barrier" && BoolOf(op, "sync")) graph.Wait(event, version);
      }
    }
  }
  const std::string cycle = graph.Cycle();
  return cycle.empty() ? absl::OkStatus() : Broken("waits", cycle);
}

class SetRules {
 public:
  SetRules(const v1::ProgramDesc& trainer, const ServerSide& server)
      : trainer_(trainer),
        server_(server),
        main_(server.programs->main),
        trainer_vars_(trainer.blocks(0)),
        server_vars_(main_.blocks(0)) {}

  absl::Status Check() const {
    const v1::OpDesc* listen = ListenOf(main_);
    CHECK(listen != nullptr) << "verify the server first";
    ASSIGN_OR_RETURN(const Updates updates, UpdatesOf(main_, *listen));
    for (const v1::OpDesc& op : trainer_.blocks(0).ops()) {
      if (op.type() == "send") RETURN_IF_ERROR(CheckSend(op, updates));
      if (op.type() == "recv") RETURN_IF_ERROR(CheckRecv(op));
      if (op.type() == "prefetch") RETURN_IF_ERROR(CheckPrefetch(op));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckSend(const v1::OpDesc& op, const Updates& updates) const {
    const auto& blocks = StringsOf(op, "blocks");
    const auto& vars = SlotVars(op.inputs(), "X");
    for (int i = 0; i < blocks.size(); ++i) {
      const int64_t to = IntAt(op, "servers", i, -2);
      if (to != server_.index && to != -1) continue;  // -1: rows of a table go to every server
      const auto update = updates.find(blocks[i]);
      if (update == updates.end()) {
        return Broken("updated_once", "'", vars[i], "' is sent to ", to < 0 ? "table" : "block", " '", blocks[i],
                      "', which nothing on server ", server_.index, " updates");
      }
      const v1::VarDesc* sent = trainer_vars_.Find(vars[i]);
      const v1::VarDesc* taken = server_vars_.Find(InputOf(*update->second, "Grad"));
      if (sent == nullptr || taken == nullptr) continue;
      const bool rows = sent->kind() == v1::SELECTED_ROWS;
      const bool fits = rows ? taken->kind() == v1::SELECTED_ROWS && DimsAgree(Dims(*sent), Dims(*taken))
                             : taken->kind() == v1::DENSE && KnownCount(Dims(*sent)) == KnownCount(Dims(*taken));
      if (fits && sent->dtype() == taken->dtype()) continue;
      return Broken("shapes", "a trainer sends '", sent->name(), "' ", DescribeVar(*sent), "; server ", server_.index,
                    " takes '", taken->name(), "' ", DescribeVar(*taken));
    }
    return absl::OkStatus();
  }

  absl::Status CheckRecv(const v1::OpDesc& op) const {
    const auto& blocks = StringsOf(op, "blocks");
    const auto& vars = SlotVars(op.outputs(), "Out");
    for (int i = 0; i < blocks.size(); ++i) {
      if (IntAt(op, "servers", i, -2) != server_.index) continue;
      const v1::VarDesc* out = trainer_vars_.Find(vars[i]);
      const v1::VarDesc* held = server_vars_.Find(blocks[i]);
      if (held == nullptr)
        return Broken("received_once", "server ", server_.index, " has no block '", blocks[i], "' to give");
      if (out == nullptr || (out->dtype() == held->dtype() && KnownCount(Dims(*out)) == KnownCount(Dims(*held))))
        continue;
      return Broken("shapes", "server ", server_.index, " gives '", held->name(), "' ", DescribeVar(*held),
                    "; a trainer takes '", out->name(), "' ", DescribeVar(*out));
    }
    return absl::OkStatus();
  }

  absl::Status CheckPrefetch(const v1::OpDesc& op) const {
    const auto& tables = StringsOf(op, "row_tables");
    for (int i = 0; i < tables.size(); ++i) {
      const v1::VarDesc* held = server_vars_.Find(tables[i]);
      if (IntAt(op, "heights", i, -1) >= 0) continue;  // blocks, which CheckRecv's side of the plan has seen
      if (held == nullptr || held->kind() != v1::TABLE) {
        return Broken("received_once", "server ", server_.index, " has no table '", tables[i], "' to give rows of");
      }
      if (held->dims(1) == IntAt(op, "widths", i, 0)) continue;
      return Broken("shapes", "prefetch takes rows of ", IntAt(op, "widths", i, 0), " floats; table '", tables[i],
                    "' of server ", server_.index, " is ", DescribeVar(*held));
    }
    return absl::OkStatus();
  }

  const v1::ProgramDesc& trainer_;
  const ServerSide& server_;
  const v1::ProgramDesc& main_;
  const VarIndex trainer_vars_, server_vars_;
};

// Checks that both sides know of the same norms over dense parameters and tables: a server waits for the trainers'
// part.
absl::Status CheckNorms(const v1::ProgramDesc& trainer, const ServerSide& server) {
  const std::set<std::string> mine = NormsWithTables(trainer), theirs = NormsWithTables(server.programs->main);
  const auto describe = [](const std::set<std::string>& names) {
    return names.empty() ? "none" : absl::StrCat("'", absl::StrJoin(names, "', '"), "'");
  };
  if (mine == theirs) return absl::OkStatus();
  return Broken("agreed",
                "norms over dense parameters and tables (attribute with_tables of whole_norm): the trainer has ",
                describe(mine), ", server ", server.index, " has ", describe(theirs));
}

// Checks that rows which a trainer pulls ahead can be corrected at the borders of steps.
absl::Status CheckAhead(const v1::ProgramDesc& trainer, const ServerSide& server) {
  const char* const why = WhyNotAhead(ModeOf(server.programs->main));
  if (why == nullptr || !ModeOf(trainer).prefetch_rows()) return absl::OkStatus();
  return Broken("ahead", "prefetch runs ahead, and on server ", server.index, " ", why);
}

}  // namespace

absl::Status VerifySet(const Programs& trainer, absl::Span<const ServerSide> servers) {
  const std::string plan = trainer.main.plan().SerializeAsString();
  for (const ServerSide& server : servers) {
    if (server.programs->main.plan().SerializeAsString() != plan) {
      return Broken("agreed", "the plan of server ", server.index, " is not the trainer's");
    }
    RETURN_IF_ERROR(SetRules(trainer.main, server).Check());
    RETURN_IF_ERROR(CheckNorms(trainer.main, server));
    RETURN_IF_ERROR(CheckAhead(trainer.main, server));
  }
  return CheckWaits(trainer.main, servers);
}

}  // namespace weir
